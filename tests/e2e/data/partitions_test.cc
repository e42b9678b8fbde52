// Variables of directories (data.partition), and text of another dialect: the same bits as of plain text that has them
// in its lines, on every cluster, after a resume and in prediction.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(
name: "days"
data {
  train { files: "TRAIN" where { of: "dt" value: "20240103" invert: true } }
  eval { files: "TRAIN" where { of: "dt" value: "20240103" } }
  csv { DIALECT
    column { name: "label" }
    column { name: "x0" output: "x" } column { name: "x1" output: "x" }
    column { name: "a" type: ID whole_floats: true }
    COLUMNS
  }
  PARTITIONS
  derived { name: "a_at" cross { of: "a" of: "city" } }
  batch_size: 32
  shuffle: WINDOW shuffle_window: 100
}
model {
  layer { name: "fields" embedding { ids: "a" ids: "dt" ids: "city" ids: "a_at" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "x" input: "hour" } }
  layer { name: "deep" fc { input: "input" size: 8 activation: RELU } }
  layer { name: "logit" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
metric { auc {} by: "dt" }
metric { auc {} by: "city" value: "Köln/Süd" }
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 } } }
optimizer { adam { learning_rate: 0.005 } }
train { seed: 3 epochs: 2 digest_every_steps: 10 }
)";

class PartitionsTest : public SlotJobTest {
 protected:
  // Writes 2000 examples in three days of two hours and two cities: "flat.csv" has all columns, the files below "hive"
  // those that are not in their names, in the same order.
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    std::ofstream flat(Path("flat.csv"));
    flat << "label,x0,x1,a,dt,hour,city\n";
    int64_t n = 0;
    for (const char* const day : {"20240101", "20240102", "20240103"}) {
      for (const char* const hour : {"00", "13"}) {
        for (const auto& [directory, city] :
             {std::pair{"K%C3%B6ln%2FS%C3%BCd", "Köln/Süd"}, std::pair{"__HIVE_DEFAULT_PARTITION__", ""}}) {
          const std::string in = absl::StrCat("hive/dt=", day, "/hour=", hour, "/city=", directory);
          fs::create_directories(Path(in));
          std::ofstream file(Path(in + "/part-0.csv")), other(Path(in + "/part-0.txt"));
          file << "a,label,x0,x1\n";
          other << "written by hand\n\na;;label;;x0;;x1\n# nothing yet\n";
          for (const int64_t end = n + 167; n < end; ++n) {
            const std::vector<std::string> words = absl::StrSplit(SlotLine(n), ' ');
            const std::string &label = words[1], &x0 = words[3], &x1 = words[4], &a = words[8];
            flat << absl::StrCat(label, ",", x0, ",", x1, ",", a, ",", day, ",", hour, ",", city, "\n");
            file << absl::StrCat(a, ",", label, ",", x0, ",", x1, "\n");
            const auto comma = [](const std::string& number) { return absl::StrReplaceAll(number, {{".", ","}}); };
            other << absl::StrCat(a, ",0;;'", label, "';;", comma(x0), ";;", comma(x1),
                                  n % 5 == 0 ? "\n\n \n# x\n" : "\n");
          }
        }
      }
    }
  }
  static std::string Job(const std::string& files, const std::string& dialect, bool in_names) {
    return absl::StrReplaceAll(
        kJob,
        {{"TRAIN", files},
         {"DIALECT", dialect},
         {"COLUMNS", in_names ? ""
                              : "column { name: \"dt\" type: ID } column { name: \"hour\" } column { name: \"city\" "
                                "type: TEXT }"},
         {"PARTITIONS", in_names ? "partition { name: \"dt\" type: ID } partition { name: \"hour\" } partition { "
                                   "name: \"city\" type: TEXT }"
                                 : ""}});
  }
  static std::string Flat() { return Job("flat.csv", "", false); }
  static std::string Hive() { return Job("hive/dt=*/hour=*/city=*/part-0.csv", "", true); }
  static std::string Dialect() {
    return Job("hive/*/*/*/part-0.txt",
               "separator: \";;\" quote: \"'\" decimal_comma: true skip_lines: 2 skip_blank_lines: true comment: \"#\"",
               true);
  }
};

TEST_F(PartitionsTest, TheBitsAreThoseOfColumnsInTheFile) {
  const InProcessResult flat = Run({.job_text = Flat()});
  ASSERT_GT(flat.digests.size(), 5u);
  EXPECT_EQ(flat.summary.examples + flat.summary.left_out, 2 * 2 * 4 * 167);
  EXPECT_THAT(EvalLines(flat).back(), HasSubstr("auc[dt=20240103]="));
  EXPECT_THAT(EvalLines(flat).back(), HasSubstr("auc[city=Köln/Süd]="));
  const auto same = [&](const char* what, InProcessRun other) {
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, flat.digests) << what;
    EXPECT_EQ(EvalLines(result), EvalLines(flat)) << what;
  };
  same("directories", {.job_text = Hive()});
  same("two servers and two trainers", {.job_text = Hive(), .servers = 2, .trainers = 2});
  same("another dialect", {.job_text = Dialect(), .servers = 2, .trainers = 2});

  Run({.job_text = Dialect(), .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  const InProcessResult resumed =
      Run({.job_text = Dialect(), .overrides = {CheckpointIn("resumed")}, .servers = 2, .trainers = 2, .resume = true});
  ASSERT_FALSE(resumed.digests.empty());
  EXPECT_EQ(resumed.digests.back(), flat.digests.back());
  EXPECT_EQ(EvalLines(resumed), EvalLines(flat));
}

TEST_F(PartitionsTest, PredictionsTakeThemFromTheNamesOfTheInput) {
  // Columns from names and from files are other settings of the data, so each job predicts with its own checkpoint.
  const auto predict = [&](const std::string& job, const std::string& output) {
    const std::string checkpoints = absl::StrCat("of_", output);
    Run({.job_text = job, .overrides = {CheckpointIn(checkpoints)}});
    const absl::StatusOr<int64_t> scored = PredictInProcess({.job_text = job, .directory = dir_, .trainers = 2},
                                                            {.checkpoints = Path(checkpoints), .output = Path(output)});
    EXPECT_TRUE(scored.ok()) << scored.status();
    std::ifstream in(Path(output));
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string flat = predict(Flat(), "flat.scores");
  EXPECT_GT(flat.size(), 4u * 167 * 5);
  EXPECT_EQ(predict(Hive(), "hive.scores"), flat);
  EXPECT_EQ(predict(Dialect(), "dialect.scores"), flat);
}

TEST_F(PartitionsTest, FilesThatFollowHaveThem) {
  const std::vector<std::string> follow = {"data.follow={ look_every_s: 0.05 until: \"flat.csv\" files_together: 12 }",
                                           "train.epochs=1", "data.shuffle=NO_SHUFFLE"};
  const InProcessResult all = Run({.job_text = Flat(), .overrides = {"train.epochs=1", "data.shuffle=NO_SHUFFLE"}});
  const InProcessResult followed = Run({.job_text = Hive(), .overrides = follow, .servers = 2, .trainers = 2});
  EXPECT_EQ(followed.digests, all.digests);
}

TEST_F(PartitionsTest, AFileElsewhereIsAnErrorThatNamesIt) {
  fs::create_directories(Path("lost/dt=20240101/hour=01"));
  for (const char* const name : {"lost/dt=20240101/part-0.csv", "lost/dt=20240101/hour=01/part-0.csv"}) {
    std::ofstream(Path(name)) << "a,label,x0,x1\n1,1,1,1\n";
  }
  const std::string job = Job("lost/*/part-0.csv\" files: \"lost/*/*/part-0.csv", "", true);
  const std::string message(TryRun({.job_text = job}).status().message());
  EXPECT_THAT(message, HasSubstr("lost/dt=20240101/hour=01/part-0.csv: no directory of its name is 'city=...'"));
  EXPECT_THAT(message, HasSubstr("those with a value are of dt, hour"));
  // A column that files do not have.
  const std::string column = absl::StrReplaceAll(Job("hive/*/*/*/part-0.csv", "", false),
                                                 {{"column { name: \"hour\" }", ""}, {"input: \"hour\"", ""}});
  EXPECT_THAT(
      std::string(TryRun({.job_text = column}).status().message()),
      HasSubstr("part-0.csv:1: the header has no column 'dt'; its 4 are a, label, x0, x1; the name of the file has "
                "a value of it: data.partition { name: \"dt\" } in place of the column"));
}

}  // namespace
}  // namespace weir
