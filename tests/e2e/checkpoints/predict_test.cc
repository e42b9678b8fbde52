// A trained model in use: predictions are the same file for every cluster, in input order, and are what the exported
// parameters say; the reported AUC is that of the predictions.

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr int64_t kEvalBegin = 2000, kEvalEnd = 3000;

std::string Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void WriteGzip(const std::string& file, int64_t begin, int64_t end) {
  gzFile out = gzopen(file.c_str(), "wb");
  ASSERT_NE(out, nullptr);
  for (int64_t i = begin; i < end; ++i) {
    const std::string line = SlotLine(i) + "\n";
    ASSERT_EQ(gzwrite(out, line.data(), static_cast<unsigned>(line.size())), static_cast<int>(line.size()));
  }
  ASSERT_EQ(gzclose(out), Z_OK);
}

std::vector<double> Numbers(const std::string& text) {
  std::vector<double> numbers;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    EXPECT_TRUE(absl::SimpleAtod(line, &numbers.emplace_back())) << line;
  }
  return numbers;
}

// By counting pairs of a positive and a negative; equal scores count half.
double Auc(const std::vector<double>& scores, const std::vector<int>& labels) {
  double wins = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      pairs += 1;
      wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return wins / pairs;
}

// The arrays of a .npz, as the bytes behind their .npy headers.
std::map<std::string, std::string> ReadNpz(const std::string& file) {
  const std::string zip = Contents(file);
  std::map<std::string, std::string> arrays;
  size_t at = 0;
  const auto u16 = [&](size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(zip[i]) | static_cast<uint8_t>(zip[i + 1]) << 8);
  };
  while (zip.compare(at, 4, "PK\3\4") == 0) {
    const size_t name_size = u16(at + 26), extra_size = u16(at + 28);
    uint64_t size = 0;  // in the 64-bit extra field
    std::memcpy(&size, zip.data() + at + 30 + name_size + 4, 8);
    const std::string name = zip.substr(at + 30, name_size);
    const size_t data = at + 30 + name_size + extra_size;
    EXPECT_EQ(zip.compare(data, 6, "\x93NUMPY"), 0) << name;
    const size_t header = 10 + u16(data + 8);
    arrays[name.substr(0, name.find(".npy"))] = zip.substr(data + header, size - header);
    at = data + size;
  }
  EXPECT_EQ(zip.compare(at, 4, "PK\1\2"), 0) << file;
  return arrays;
}

template <typename T>
std::vector<T> As(const std::map<std::string, std::string>& arrays, const std::string& name) {
  const auto found = arrays.find(name);
  EXPECT_NE(found, arrays.end()) << name;
  if (found == arrays.end()) return {};
  std::vector<T> values(found->second.size() / sizeof(T));
  std::memcpy(values.data(), found->second.data(), values.size() * sizeof(T));
  return values;
}

class PredictTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/predict";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
    const absl::StatusOr<InProcessResult> trained =
        TrainInProcess({.job_text = kSlotJob,
                        .directory = dir_,
                        .overrides = {absl::StrCat("checkpoint.dir=\"", Checkpoints(), "\"")},
                        .servers = 2,
                        .trainers = 2});
    ASSERT_TRUE(trained.ok()) << trained.status();
    trained_ = new InProcessResult(*trained);
    ASSERT_TRUE(Predict(1, 1, "", "reference").ok());
  }
  static void TearDownTestSuite() {
    delete trained_;
    std::filesystem::remove_all(dir_);
  }

  static std::string Path(const std::string& name) { return absl::StrCat(dir_, "/", name); }
  static std::string Checkpoints() { return Path("checkpoints"); }
  static absl::StatusOr<int64_t> Predict(int servers, int trainers, const std::string& input, const std::string& output,
                                         const std::string& job = kSlotJob,
                                         const std::vector<std::string>& carry = {}) {
    return PredictInProcess({.job_text = job, .directory = dir_, .servers = servers, .trainers = trainers},
                            {.checkpoints = Checkpoints(), .input = input, .output = Path(output), .carry = carry});
  }
  static std::string Reference() { return Contents(Path("reference")); }

  static std::string dir_;
  static InProcessResult* trained_;
};
std::string PredictTest::dir_;
InProcessResult* PredictTest::trained_ = nullptr;

TEST_F(PredictTest, TheReportedAucIsThatOfThePredictions) {
  const std::vector<double> scores = Numbers(Reference());
  ASSERT_EQ(scores.size(), static_cast<size_t>(kEvalEnd - kEvalBegin));
  std::vector<int> labels;
  for (int64_t i = kEvalBegin; i < kEvalEnd; ++i) labels.push_back(SlotLabel(i));
  ASSERT_TRUE(trained_->summary.eval.has_value());
  EXPECT_GE(trained_->summary.eval->Measure("auc"), kSlotJobAuc);
  EXPECT_NEAR(Auc(scores, labels), trained_->summary.eval->Measure("auc"),
              trained_->summary.eval->measures[1].error.value() + 1e-12);
  double loss = 0;
  for (size_t i = 0; i < scores.size(); ++i) loss -= std::log(labels[i] == 1 ? scores[i] : 1 - scores[i]);
  EXPECT_NEAR(loss / static_cast<double>(scores.size()), trained_->summary.eval->Measure("loss"), 1e-5);
}

TEST_F(PredictTest, EveryClusterWritesTheSameBytes) {
  for (const auto& [servers, trainers] : {std::pair{2, 1}, {2, 2}, {1, 3}, {3, 3}}) {
    const std::string output = absl::StrCat("cluster", servers, trainers);
    const absl::StatusOr<int64_t> scored = Predict(servers, trainers, "", output);
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, kEvalEnd - kEvalBegin);
    EXPECT_EQ(Contents(Path(output)), Reference()) << servers << " servers, " << trainers << " trainers";
  }
}

// Plain files are read by bytes and compressed ones as a whole; the order of the output is that of the input all the
// same.
TEST_F(PredictTest, CompressedAndPlainFilesKeepTheInputsOrder) {
  WriteGzip(Path("mixed-0.txt.gz"), 2000, 2200);
  WriteSlotLines(Path("mixed-1.txt"), 2200, 2550);
  WriteGzip(Path("mixed-2.txt.gz"), 2550, 2551);
  WriteSlotLines(Path("mixed-3.txt"), 2551, 3000);
  for (int trainers : {1, 3}) {
    const absl::StatusOr<int64_t> scored = Predict(2, trainers, Path("mixed-*"), "mixed");
    ASSERT_TRUE(scored.ok()) << scored.status();
    // Lanes have other examples side by side than in one file, and the last bit of a product hangs on how many they
    // are.
    std::istringstream mixed(Contents(Path("mixed"))), reference(Reference());
    for (int i = 0; i < kEvalEnd - kEvalBegin; ++i) {
      double score = 0, expected = 1;
      ASSERT_TRUE(mixed >> score && reference >> expected);
      ASSERT_NEAR(score, expected, 1e-6) << "line " << i << ", " << trainers << " trainers";
    }
  }
}

TEST_F(PredictTest, AStopWritesNothingAndSaysSo) {
  std::ofstream(Path("earlier")) << "scores of an earlier run\n";
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator(dir_), std::filesystem::directory_iterator());
  };
  const auto before = files();
  const std::atomic<bool> stop{true};
  const absl::StatusOr<int64_t> scored =
      PredictInProcess({.job_text = kSlotJob, .directory = dir_, .servers = 2, .trainers = 2, .stop = &stop},
                       {.checkpoints = Checkpoints(), .input = "", .output = Path("earlier")});
  EXPECT_EQ(scored.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(scored.status().message()), ::testing::HasSubstr("nothing was written to"));
  EXPECT_EQ(Contents(Path("earlier")), "scores of an earlier run\n");
  EXPECT_EQ(files(), before);
}

// transpiler/job/checkpoint_job_test.cc has every kind of edit.
TEST_F(PredictTest, AnotherModelThanTheCheckpointsIsRefused) {
  const std::string other = absl::StrReplaceAll(kSlotJob, {{"activation: RELU", "activation: TANH"}});
  const size_t at = other.find("activation: TANH"), line_begin = other.rfind('\n', at);
  const std::string place =
      absl::StrCat(std::count(other.begin(), other.begin() + static_cast<int64_t>(at), '\n') + 1, ":", at - line_begin);
  for (const auto& [servers, trainers] : {std::pair{1, 1}, {2, 2}}) {
    const absl::Status status = Predict(servers, trainers, "", "of_another", other).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::HasSubstr(absl::StrCat("job.textproto:", place, ": model.layer[3].fc.activation was RELU in ",
                                          "the checkpoint's job, and is TANH here: the scores would not be ",
                                          "those of the model in ", Checkpoints(), "/step-")));
    EXPECT_FALSE(std::filesystem::exists(Path("of_another")));
  }
}

TEST_F(PredictTest, SettingsThatDecideScoresAreRefused) {
  for (const char* const setting :
       {"model.layer[3].fc.activation=TANH", "model.layer[3].fc.bias=false", "model.layer[1].embedding.pooling=MEAN",
        "model.layer[0].embedding.padding_id=3", "data.dense.transform=LOG1P", "data.ids.empty=ZERO",
        "data.ids.min_count=3", "data.ids.shared=[]", "train.seed=4", "table[0].initializer={ constant {} }",
        "table[1].storage=FLOAT16", "data.multi_slot.slot[3].name=\"c\""}) {
    const absl::Status status = PredictInProcess({.job_text = kSlotJob, .directory = dir_, .overrides = {setting}},
                                                 {.checkpoints = Checkpoints(), .input = "", .output = Path("edited")})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << setting << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(" in the checkpoint's job, and is ")) << setting;
    EXPECT_FALSE(std::filesystem::exists(Path("edited"))) << setting;
  }
}

TEST_F(PredictTest, SettingsThatDoNotDecideScoresChangeNone) {
  for (const char* const setting :
       {"data.batch_size=16", "data.shuffle=NO_SHUFFLE", "data.bad_line=SKIP", "data.drop_last=true", "train.lanes=4",
        "train.epochs=2", "train.accumulate_steps=2", "distribute.sync=false", "checkpoint.keep_last=1",
        "model.layer[3].fc.weight_initializer={ constant {} }", "model.loss[0].weight=3", "model.loss[0].name=click",
        "table[0].dict_size=1000000", "table[0].min_value=-0.0001", "optimizer.adam.learning_rate=7"}) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = kSlotJob, .directory = dir_, .overrides = {setting}},
                         {.checkpoints = Checkpoints(), .input = "", .output = Path("edited")});
    ASSERT_TRUE(scored.ok()) << setting << ": " << scored.status();
    std::istringstream scores(Contents(Path("edited"))), reference(Reference());
    for (int i = 0; i < kEvalEnd - kEvalBegin; ++i) {
      double score = 0, expected = 1;
      ASSERT_TRUE(scores >> score && reference >> expected) << setting;
      // Other batches have their sums cut elsewhere.
      ASSERT_NEAR(score, expected, 1e-6) << setting << ", line " << i;
    }
    std::filesystem::remove(Path("edited"));
  }
}

TEST_F(PredictTest, LabelsMayBeMissing) {
  WriteSlotLines(Path("unlabelled.txt"), kEvalBegin, kEvalEnd, /*missing_labels=*/true);
  const absl::StatusOr<int64_t> scored = Predict(2, 2, Path("unlabelled.txt"), "unlabelled");
  ASSERT_TRUE(scored.ok()) << scored.status();
  EXPECT_EQ(Contents(Path("unlabelled")), Reference());
}

// Computes the predictions by hand from the files of `checkpoint export`: they hold the whole model.
TEST_F(PredictTest, ExportedParametersGiveThePredictions) {
  const std::string npz = Path("model.npz");
  const std::string command =
      absl::StrCat("tools/checkpoint export ", Checkpoints(), " --output=", npz, " > /dev/null");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::map<std::string, std::string> arrays = ReadNpz(npz);
  const auto deep_w = As<float>(arrays, "deep.w"), deep_b = As<float>(arrays, "deep.b");
  const auto out_w = As<float>(arrays, "out.w"), out_b = As<float>(arrays, "out.b");
  ASSERT_EQ(deep_w.size(), 12u * 16);
  ASSERT_EQ(out_w.size(), 16u);
  std::map<int64_t, std::vector<float>> vectors, weights;
  for (auto& [table, rows, width] : {std::tuple{"vectors", &vectors, 4}, {"weights", &weights, 1}}) {
    const auto ids = As<int64_t>(arrays, absl::StrCat(table, ".ids"));
    const auto values = As<float>(arrays, absl::StrCat(table, ".values"));
    ASSERT_EQ(ids.size(), 100u) << "every id is in the training data";
    ASSERT_EQ(values.size(), ids.size() * width);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    for (size_t i = 0; i < ids.size(); ++i) (*rows)[ids[i]].assign(&values[i * width], &values[i * width] + width);
  }
  const std::vector<double> scores = Numbers(Reference());
  ASSERT_EQ(scores.size(), 1000u);
  for (int64_t n = kEvalBegin; n < kEvalEnd; ++n) {
    // label 4 x0 x1 x2 x3 1 a 1 b, each with its count.
    const std::vector<double> line = Numbers(absl::StrReplaceAll(SlotLine(n), {{" ", "\n"}}));
    ASSERT_EQ(line.size(), 11u);
    const int64_t ids[] = {static_cast<int64_t>(line[8]), static_cast<int64_t>(line[10])};
    std::vector<double> input;
    double logit = out_b.at(0);
    for (const int64_t id : ids) {
      input.insert(input.end(), vectors[id].begin(), vectors[id].end());
      logit += weights[id].at(0);
    }
    input.insert(input.end(), line.begin() + 3, line.begin() + 7);
    for (int j = 0; j < 16; ++j) {
      double sum = deep_b[j];
      for (int k = 0; k < 12; ++k) sum += input[k] * deep_w[k * 16 + j];
      logit += std::max(0.0, sum) * out_w[j];
    }
    EXPECT_NEAR(scores[n - kEvalBegin], 1 / (1 + std::exp(-logit)), 1e-5) << "example " << n;
  }
}

TEST_F(PredictTest, EveryClusterCarriesTheSameColumns) {
  for (const char* const ending : {".csv", ".tfrecord", ".examples"}) {
    ASSERT_TRUE(Predict(1, 1, "", absl::StrCat("alone", ending), kSlotJob, {"b", "x", "a"}).ok());
    const std::string alone = Contents(Path(absl::StrCat("alone", ending)));
    for (const auto& [servers, trainers] : {std::pair{2, 2}, {1, 3}}) {
      const std::string output = absl::StrCat("carried", servers, trainers, ending);
      const absl::StatusOr<int64_t> scored = Predict(servers, trainers, "", output, kSlotJob, {"b", "x", "a"});
      ASSERT_TRUE(scored.ok()) << scored.status();
      EXPECT_EQ(Contents(Path(output)), alone) << servers << " servers, " << trainers << " trainers, " << ending;
    }
  }
  const std::vector<std::string> lines = absl::StrSplit(Contents(Path("alone.csv")), '\n', absl::SkipEmpty());
  const std::vector<std::string> scores = absl::StrSplit(Reference(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), scores.size() + 1);
  EXPECT_EQ(lines[0], "b,x[0],x[1],x[2],x[3],a,prediction");
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::vector<std::string> fields = absl::StrSplit(lines[i + 1], ',');
    ASSERT_EQ(fields.size(), 7u);
    const std::vector<std::string> words =
        absl::StrSplit(SlotLine(kEvalBegin + static_cast<int64_t>(i)), ' ');  // 1 label 4 x0 x1 x2 x3 1 a 1 b
    ASSERT_EQ(fields[0], words[10]) << i;
    ASSERT_EQ(fields[5], words[8]) << i;
    for (size_t x = 0; x < 4; ++x) {
      float carried = 0, read = 1;
      ASSERT_TRUE(absl::SimpleAtof(fields[1 + x], &carried) && absl::SimpleAtof(words[3 + x], &read));
      ASSERT_EQ(carried, read) << i;
    }
    ASSERT_EQ(fields[6], scores[i]) << i;
  }
}

TEST_F(PredictTest, ALineThatDoesNotParseCarriesNothing) {
  const std::string skips = absl::StrReplaceAll(kSlotJob, {{"batch_size: 32", "batch_size: 32 bad_line: SKIP"}});
  std::ofstream(Path("gaps.txt")) << SlotLine(1) << "\nno line\n" << SlotLine(2) << "\n\n";
  for (const int trainers : {1, 2}) {
    const absl::StatusOr<int64_t> scored = Predict(1, trainers, Path("gaps.txt"), "gaps.csv", skips, {"a", "label"});
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, 2);
    const std::vector<std::string> lines = absl::StrSplit(Contents(Path("gaps.csv")), '\n');
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[2], ",,nan");
    EXPECT_EQ(lines[4], ",,nan");
    const std::vector<std::string> words = absl::StrSplit(SlotLine(2), ' ');
    EXPECT_EQ(lines[3].substr(0, lines[3].rfind(',')), absl::StrCat(words[8], ",", SlotLabel(2)));
  }
}

TEST_F(PredictTest, AColumnThatIsNotThereIsRefusedBeforeAnythingIsScored) {
  for (const int trainers : {1, 2}) {
    const absl::Status status = Predict(1, trainers, "", "refused.csv", kSlotJob, {"user"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("--carry: the data has no column 'user'; there are label, x, cat, a, b"),
              absl::string_view::npos)
        << status;
    EXPECT_FALSE(std::filesystem::exists(Path("refused.csv")));
  }
}

TEST_F(PredictTest, TheCheckpointOfAnotherJobIsRefused) {
  const std::string other = absl::StrReplaceAll(kSlotJob, {{"name: \"slots\"", "name: \"others\""}});
  const absl::Status status = Predict(2, 2, "", "other", other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("is of job 'slots', and this is job 'others'"), absl::string_view::npos) << status;
  EXPECT_FALSE(std::filesystem::exists(Path("other")));
}

TEST_F(PredictTest, TheCheckpointOfAWiderModelIsRefused) {
  const std::string wider = absl::StrReplaceAll(kSlotJob, {{"size: 16", "size: 17"}});
  const absl::Status status = Predict(2, 2, "", "wider", wider).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("model.layer[3].fc.size was 16 in the checkpoint's job, and is 17 here"),
            absl::string_view::npos)
      << status;
  EXPECT_FALSE(std::filesystem::exists(Path("wider")));
}

}  // namespace
}  // namespace weir
