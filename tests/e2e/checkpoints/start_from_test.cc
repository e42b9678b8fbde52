// Runs that start from checkpoints of other jobs: with new parts silent a model predicts what the old one did, on every
// cluster; then all that is new learns.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/philox.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/table_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLines = 1200;

// Columns that the first job skips stand in the data already.
constexpr char kJob[] = R"(name: "old"
data {
  train { files: "train.csv" }
  eval { files: "train.csv" }
  csv {
    header: true
    column { name: "label" }
    column { name: "age" output: "dense" }
    column { name: "hour" output: "dense" }
    column { name: "user" type: TEXT output: "cat" }
    column { name: "item" type: ID output: "cat" }
  }
  dense { transform: STANDARDIZE }
  ids { min_count: 2 }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [16, 8] } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 8 is_sparse: true is_distributed: true logical_shards: 64
        initializer { uniform { min: -0.1 max: 0.1 } } }
table { name: "weights" width: 1 is_sparse: true is_distributed: true logical_shards: 64 }
optimizer { adagrad { learning_rate: 0.05 } }
train { seed: 3 lanes: 4 }
)";

struct Cluster {
  std::string name;
  int servers, trainers;
  std::vector<std::string> overrides;
};

const std::vector<Cluster>& Clusters() {
  static const auto* const clusters = new std::vector<Cluster>{
      {"local", 0, 1, {}},
      {"servers", 2, 2, {}},
      {"all_reduce", 0, 2, {"distribute.dense=ALL_REDUCE"}},
      {"sharded", 0, 2, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}},
      {"hybrid", 2, 2, {"distribute.dense=ALL_REDUCE"}},
  };
  return *clusters;
}

class StartFromTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/start_from";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    std::ofstream out(absl::StrCat(dir_, "/train.csv"));
    out << "label,age,hour,user,item,shop,price,history\n";
    for (uint64_t i = 0; i < kLines; ++i) {
      const PhiloxBlock r = Philox(7, i, 0), s = Philox(8, i, 0);
      const uint64_t user = r.v[0] % 50, item = r.v[1] % 80, shop = r.v[2] % 9;
      const double logit =
          static_cast<double>(user % 5) - static_cast<double>(item % 3) + (shop % 2 == 0 ? 2.0 : -2.0) - 1;
      const bool label = static_cast<double>(s.v[0] % 10000) / 10000 < 1 / (1 + std::exp(-logit));
      out << label << ',' << r.v[3] % 70 << ',' << s.v[1] % 24 << ",u" << user << ',' << item << ",s" << shop << ','
          << s.v[2] % 1000 << ',' << s.v[3] % 20 << ' ' << s.v[3] % 17 << '\n';
    }
    out.close();
    Train("old", kJob, {"train.epochs=2"}, Clusters()[0]);
    old_ = Scores("old", kJob, {}, Clusters()[0]);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static std::vector<std::string> Overrides(const std::string& checkpoints, const std::vector<std::string>& more,
                                            const Cluster& cluster) {
    std::vector<std::string> overrides = cluster.overrides;
    overrides.push_back(absl::StrCat("checkpoint.dir=", checkpoints));
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
  }
  static absl::StatusOr<InProcessResult> TryTrain(const std::string& checkpoints, const std::string& text,
                                                  const std::vector<std::string>& more, const Cluster& cluster) {
    return TrainInProcess({.job_text = text,
                           .directory = dir_,
                           .overrides = Overrides(checkpoints, more, cluster),
                           .servers = cluster.servers,
                           .trainers = cluster.trainers});
  }
  static TrainSummary Train(const std::string& checkpoints, const std::string& text,
                            const std::vector<std::string>& more, const Cluster& cluster) {
    const absl::StatusOr<InProcessResult> result = TryTrain(checkpoints, text, more, cluster);
    EXPECT_TRUE(result.ok()) << cluster.name << ": " << result.status() << "\n" << text;
    return result.ok() ? result->summary : TrainSummary();
  }
  static std::vector<std::string> Scores(const std::string& checkpoints, const std::string& text,
                                         const std::vector<std::string>& more, const Cluster& cluster) {
    const std::string output = absl::StrCat(dir_, "/scores.csv");
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = text,
                          .directory = dir_,
                          .overrides = Overrides(checkpoints, more, cluster),
                          .servers = cluster.servers,
                          .trainers = cluster.trainers},
                         {.checkpoints = absl::StrCat(dir_, "/", checkpoints), .output = output});
    EXPECT_TRUE(scored.ok()) << scored.status();
    std::ifstream in(output);
    std::stringstream all;
    all << in.rdbuf();
    return absl::StrSplit(all.str(), '\n', absl::SkipEmpty());
  }

  static std::string Edited(const std::vector<std::pair<std::string, std::string>>& edits,
                            const std::string& text = kJob) {
    std::string edited = text;
    for (const auto& [from, to] : edits) {
      EXPECT_EQ(absl::StrReplaceAll({{from, to}}, &edited), 1) << from;
    }
    return edited;
  }
  static std::string Started(const std::string& text, const std::string& from, const std::string& checkpoint = "old") {
    return absl::StrCat(text, "start_from { checkpoint: \"", dir_, "/", checkpoint, "\" ", from, " }\n");
  }
  // Expects of a start, on every cluster, the scores of the old model.
  static void ExpectOldScores(const std::string& text, const std::string& from, double most = 0) {
    // No step of the run changes a value.
    const std::vector<std::string> still = {"train.max_steps=1",
                                            "optimizer.parameter={ name: '*' learning_rate_factor: 0 }"};
    for (const Cluster& cluster : Clusters()) {
      const std::string job = Started(text, from);
      Train("new", job, still, cluster);
      const std::vector<std::string> scores = Scores("new", job, still, cluster);
      ASSERT_EQ(scores.size(), old_.size());
      double largest = 0;
      for (size_t i = 0; i < scores.size(); ++i) {
        double was = 0, is = 0;
        if (scores[i] == old_[i]) continue;
        ASSERT_TRUE(absl::SimpleAtod(old_[i], &was) && absl::SimpleAtod(scores[i], &is)) << scores[i];
        largest = std::max(largest, std::abs(is - was));
      }
      EXPECT_LE(largest, most) << cluster.name << ", " << from;
    }
  }
  // Trains a start for real, and expects of all that its account says to be new, but for rows, that it has moved.
  static TrainSummary ExpectNewPartsLearn(const std::string& text, const std::string& from) {
    const std::string job = Started(text, from);
    Train("begun", job, {"train.max_steps=1", "optimizer.parameter={ name: '*' learning_rate_factor: 0 }"},
          Clusters()[0]);
    const TrainSummary summary = Train("learned", job, {"train.epochs=3"}, Clusters()[1]);
    const absl::StatusOr<NewestCheckpoint> before = OpenCheckpoint(absl::StrCat(dir_, "/begun"));
    const absl::StatusOr<NewestCheckpoint> after = OpenCheckpoint(absl::StrCat(dir_, "/learned"));
    EXPECT_TRUE(before.ok() && after.ok());
    std::set<std::string> checked;
    for (const v1::StartLine& line : after->manifest.trainers().lineage().account()) {
      if (line.kind() != v1::StartLine::NEW && line.kind() != v1::StartLine::RESIZED) continue;
      const auto was = ReadWhole(before->found.path, before->manifest, line.name(), "");
      const auto is = ReadWhole(after->found.path, after->manifest, line.name(), "");
      if (!was.ok()) continue;  // a table or an input
      // Every row that is new: one whose values are zero or initial; all rows must have moved.
      const int64_t rows = was->dims[0], width = static_cast<int64_t>(was->values.size()) / rows;
      for (int64_t r = 0; r < rows; ++r) {
        bool moved = false;
        for (int64_t c = 0; c < width; ++c) {
          const auto at = static_cast<size_t>(r * width + c);
          moved |= was->values[at] != is->values[at];
        }
        EXPECT_TRUE(moved) << line.name() << " row " << r;
      }
      checked.insert(line.name());
    }
    EXPECT_FALSE(checked.empty()) << from;
    return summary;
  }

  static inline std::string dir_;
  static inline std::vector<std::string> old_;
};

const std::string kShop = "    column { name: \"shop\" type: TEXT output: \"cat\" }\n";
const std::string kPrice = "    column { name: \"price\" output: \"dense\" }\n";

TEST_F(StartFromTest, TheSameJob) { ExpectOldScores(kJob, ""); }

TEST_F(StartFromTest, AnotherSeedAndOptimizerAndBack) {
  ExpectOldScores(Edited({{"adagrad { learning_rate: 0.05 }", "adam { learning_rate: 0.01 }"}}), "");
}

TEST_F(StartFromTest, ATextIsAddedToAnOutput) {
  for (const std::string before : {"    column { name: \"user\"", "    column { name: \"item\"", "  }\n  dense {"}) {
    ExpectOldScores(Edited({{before, kShop + before}}), "new: \"cat.shop\" new_values: ZERO");
  }
}

TEST_F(StartFromTest, ANumberIsAddedToAnOutput) {
  for (const std::string before : {"    column { name: \"age\"", "    column { name: \"hour\"", "  }\n  dense {"}) {
    ExpectOldScores(Edited({{before, kPrice + before}}), "new: \"dense.price\" new_values: ZERO");
  }
}

TEST_F(StartFromTest, ASequenceIsAddedAsALayerOfItsOwn) {
  const std::string text =
      Edited({{"  }\n  dense {", "    column { name: \"history\" type: ID list: \" \" }\n  }\n  dense {"},
              {"  layer { name: \"input\" concat { input: \"fields\"",
               "  layer { name: \"past\" embedding { ids: \"history\" table: \"vectors\" sequence: 4 } }\n"
               "  layer { name: \"pooled\" sequence_pool { input: \"past\" type: MEAN } }\n"
               "  layer { name: \"input\" concat { input: \"pooled\" input: \"fields\""}});
  ExpectOldScores(text, "new: \"history\" new_values: ZERO");
}

TEST_F(StartFromTest, ATextIsAddedAsALayerOfItsOwn) {
  const std::string text =
      Edited({{"  }\n  dense {", "    column { name: \"shop\" type: TEXT }\n  }\n  dense {"},
              {"  layer { name: \"input\" concat { input: \"fields\"",
               "  layer { name: \"of_shop\" embedding { ids: \"shop\" table: \"shops\" pooling: SUM } }\n"
               "  layer { name: \"input\" concat { input: \"of_shop\" input: \"fields\""},
              {"optimizer {", "table { name: \"shops\" width: 4 is_sparse: true is_distributed: true }\noptimizer {"}});
  ExpectOldScores(text, "new: \"shops?\" new_values: ZERO");
  ExpectNewPartsLearn(text, "new: \"shops?\" new_values: ZERO");
}

TEST_F(StartFromTest, ColumnsInAnotherOrder) {
  const std::string user = "    column { name: \"user\" type: TEXT output: \"cat\" }\n";
  const std::string item = "    column { name: \"item\" type: ID output: \"cat\" }\n";
  // Slots of a sum stand in another order.
  ExpectOldScores(Edited({{user + item, item + user}}), "", 1e-6);
  const std::string age = "    column { name: \"age\" output: \"dense\" }\n";
  const std::string hour = "    column { name: \"hour\" output: \"dense\" }\n";
  ExpectOldScores(Edited({{age + hour, hour + age}}), "", 1e-6);
}

TEST_F(StartFromTest, ATableIsWidened) {
  const std::string text = Edited({{"width: 8", "width: 16"}});
  ExpectOldScores(text, "new: \"vectors\" new_values: ZERO");
  ExpectNewPartsLearn(text, "new: \"vectors\" new_values: ZERO");
}

TEST_F(StartFromTest, ALayerIsRenamedAndWidened) {
  const std::string text = Edited({{"\"deep\" mlp", "\"tower\" mlp"},
                                   {"{ input: \"deep\" size", "{ input: \"tower\" size"},
                                   {"[16, 8]", "[24, 8]"}});
  const std::string from = R"x(rename { from: "deep(.*)" to: "tower\\1" } new: "tower.0.w" new_values: ZERO)x";
  ExpectOldScores(text, from);
  ExpectNewPartsLearn(text, from);
}

TEST_F(StartFromTest, ABranchOfItsOwn) {
  const std::string text = Edited({{"  layer { name: \"logit\" add { input: \"wide\"",
                                    "  layer { name: \"linear\" fc { input: \"dense\" size: 1 } }\n"
                                    "  layer { name: \"logit\" add { input: \"linear\" input: \"wide\""}});
  ExpectOldScores(text, "new: \"linear.*\" new_values: ZERO");
  ExpectNewPartsLearn(text, "new: \"linear.*\" new_values: ZERO");
}

TEST_F(StartFromTest, AResumeGoesOnFromItsOwnCheckpoint) {
  const std::string job = Started(Edited({{"width: 8", "width: 16"}}), "new: \"vectors\" new_values: ZERO");
  const Cluster& cluster = Clusters()[1];
  Train("whole", job, {"train.max_steps=12"}, cluster);
  Train("halves", job, {"train.max_steps=6"}, cluster);
  const absl::StatusOr<InProcessResult> second =
      TrainInProcess({.job_text = job,
                      .directory = dir_,
                      .overrides = Overrides("halves", {"train.max_steps=12"}, cluster),
                      .servers = 2,
                      .trainers = 2,
                      .resume = true});
  ASSERT_TRUE(second.ok()) << second.status();
  const auto whole = OpenCheckpoint(absl::StrCat(dir_, "/whole")),
             halves = OpenCheckpoint(absl::StrCat(dir_, "/halves"));
  ASSERT_TRUE(whole.ok() && halves.ok());
  EXPECT_EQ(whole->manifest.values_digest(), halves->manifest.values_digest());
  EXPECT_EQ(whole->manifest.state_digest(), halves->manifest.state_digest());
  EXPECT_EQ(halves->manifest.trainers().lineage().ancestors(0).job(), "old");
  // A third run starts from it in turn.
  Train("third", Started(Edited({{"width: 8", "width: 16"}}), "", "halves"), {"train.max_steps=1"}, cluster);
  const auto third = OpenCheckpoint(absl::StrCat(dir_, "/third"));
  ASSERT_TRUE(third.ok());
  ASSERT_EQ(third->manifest.trainers().lineage().ancestors_size(), 2);
  EXPECT_EQ(third->manifest.trainers().lineage().ancestors(1).generation(), 2);
}

TEST_F(StartFromTest, WhatIsFrozenHoldsStill) {
  const std::string job =
      Started(Edited({{"train { seed: 3", "train { freeze: \"deep.*\" freeze: \"vectors\" seed: 3"}}), "");
  for (const Cluster& cluster : Clusters()) {
    Train("frozen", job, {"train.max_steps=10"}, cluster);
    const auto was = OpenCheckpoint(absl::StrCat(dir_, "/old")), is = OpenCheckpoint(absl::StrCat(dir_, "/frozen"));
    ASSERT_TRUE(was.ok() && is.ok());
    for (const char* name : {"deep.0.w", "deep.1.b", "out.w"}) {
      const auto before = ReadWhole(was->found.path, was->manifest, name, "");
      const auto after = ReadWhole(is->found.path, is->manifest, name, "");
      ASSERT_TRUE(before.ok() && after.ok()) << name;
      EXPECT_EQ(before->values == after->values, absl::StartsWith(name, "deep")) << cluster.name << " " << name;
    }
    const auto table = TableReader::Open(was->found.path, was->manifest, "vectors");
    const auto table_now = TableReader::Open(is->found.path, is->manifest, "vectors");
    ASSERT_TRUE(table.ok() && table_now.ok());
    EXPECT_EQ(table->rows(), table_now->rows()) << cluster.name;
  }
  const auto none = TryTrain("none", kJob, {"train.freeze=nothing.*"}, Clusters()[0]);
  EXPECT_THAT(none.status().message(), AllOf(HasSubstr("train.freeze[0] 'nothing.*' matches no parameter")));
}

std::string ContentsOf(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.is_open()) << path;
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

// examples/evolve: the flights of three months with a new column, beside the old model and a run on all months.
TEST_F(StartFromTest, AColumnAddedToFlights) {
  const char* const data = std::getenv("WEIR_DATA_DIR");
  const std::string flights = absl::StrCat(data == nullptr ? "" : data, "/nycflights-late/flights.csv.gz");
  if (!std::filesystem::exists(flights)) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late)";
  }
  std::filesystem::create_directories(absl::StrCat(dir_, "/data"));
  std::filesystem::create_symlink(std::filesystem::absolute(flights), absl::StrCat(dir_, "/data/flights.csv.gz"));
  const std::string before = ContentsOf("examples/evolve/before.textproto");
  const std::string after = ContentsOf("examples/evolve/after.textproto");
  const size_t start = after.find("start_from {");
  ASSERT_NE(start, std::string::npos);
  std::string alone = after.substr(0, start);
  ASSERT_EQ(absl::StrReplaceAll({{"of: \"month\" from: 10", "of: \"month\" below: 13"}}, &alone), 1);
  const TrainSummary old = Train("checkpoints/before", before, {}, Clusters()[1]);
  const TrainSummary started = Train("checkpoints/after", after, {}, Clusters()[1]);
  const TrainSummary fresh = Train("checkpoints/fresh", alone, {}, Clusters()[1]);
  ASSERT_TRUE(old.eval.has_value() && started.eval.has_value() && fresh.eval.has_value());
  EXPECT_GT(started.eval->Measure("auc"), old.eval->Measure("auc") + 0.01);
  EXPECT_GT(started.eval->Measure("auc"), fresh.eval->Measure("auc") - 0.002);
  EXPECT_LE(started.steps, 0.4 * static_cast<double>(fresh.steps));
}

TEST_F(StartFromTest, AStartThatFailsChangesNothing) {
  Train("kept", kJob, {"train.max_steps=1"}, Clusters()[1]);
  const auto kept = [] {
    const absl::StatusOr<std::vector<CheckpointPath>> all = ListCheckpoints(absl::StrCat(dir_, "/kept"));
    return all.ok() ? all->size() : 0;
  };
  ASSERT_EQ(kept(), 1u);
  const auto incomplete = TryTrain("kept", Started(Edited({{"width: 8", "width: 16"}}), ""), {}, Clusters()[1]);
  EXPECT_EQ(incomplete.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(incomplete.status().message(), AllOf(HasSubstr("start_from[0]"), HasSubstr("new: \"vectors\"")));
  EXPECT_EQ(kept(), 1u);
  const auto own = TryTrain("kept", Started(kJob, "", "kept"), {}, Clusters()[1]);
  EXPECT_THAT(own.status().message(), AllOf(HasSubstr("start_from[0].checkpoint: '"),
                                            HasSubstr("is in this job's checkpoint.dir"), HasSubstr("--resume")));
  EXPECT_EQ(kept(), 1u);
}

}  // namespace
}  // namespace weir
