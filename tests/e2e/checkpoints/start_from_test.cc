// Runs that start from checkpoints of other jobs: with new parts silent a model predicts what the old one did, on every
// cluster; then all that is new learns.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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
#include "absl/types/span.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
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
    WriteLines("train.csv", 0, kLines);
    Train("old", kJob, {"train.epochs=2"}, Clusters()[0]);
    old_ = Scores("old", kJob, {}, Clusters()[0]);
  }
  // Writes lines [begin, end) of the planted model.
  static void WriteLines(const std::string& name, uint64_t begin, uint64_t end) {
    std::ofstream out(absl::StrCat(dir_, "/", name));
    out << "label,age,hour,user,item,shop,price,history\n";
    for (uint64_t i = begin; i < end; ++i) {
      const PhiloxBlock r = Philox(7, i, 0), s = Philox(8, i, 0);
      const uint64_t user = r.v[0] % 50, item = r.v[1] % 80, shop = r.v[2] % 9;
      const double logit =
          static_cast<double>(user % 5) - static_cast<double>(item % 3) + (shop % 2 == 0 ? 2.0 : -2.0) - 1;
      const bool label = static_cast<double>(s.v[0] % 10000) / 10000 < 1 / (1 + std::exp(-logit));
      out << label << ',' << r.v[3] % 70 << ',' << s.v[1] % 24 << ",u" << user << ',' << item << ",s" << shop << ','
          << s.v[2] % 1000 << ',' << s.v[3] % 20 << ' ' << s.v[3] % 17 << '\n';
    }
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
    for (const Cluster& cluster : Clusters()) ExpectScores(Started(text, from), old_, most, cluster);
  }
  // Expects of a job with start_from other scores by `most` at the most.
  static void ExpectScores(const std::string& job, const std::vector<std::string>& expected, double most,
                           const Cluster& cluster) {
    // No step of the run changes a value.
    const std::vector<std::string> still = {"train.max_steps=1",
                                            "optimizer.parameter={ name: '*' learning_rate_factor: 0 }"};
    Train("new", job, still, cluster);
    const std::vector<std::string> scores = Scores("new", job, still, cluster);
    ASSERT_EQ(scores.size(), expected.size());
    double largest = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      double was = 0, is = 0;
      if (scores[i] == expected[i]) continue;
      ASSERT_TRUE(absl::SimpleAtod(expected[i], &was) && absl::SimpleAtod(scores[i], &is)) << scores[i];
      largest = std::max(largest, std::abs(is - was));
    }
    EXPECT_LE(largest, most) << cluster.name << "\n" << job;
  }

  // Changes the values of a parameter, and of a row of a table.
  using EditDense = std::function<void(const std::string& variable, absl::Span<float> values)>;
  using EditRow = std::function<void(const std::string& table, int64_t id, absl::Span<float> row)>;
  // Writes the newest checkpoint of `from` again, with other values.
  static void WriteEdited(const std::string& from, const std::string& to, const EditDense& edit_dense,
                          const EditRow& edit_row) {
    const absl::StatusOr<NewestCheckpoint> old = OpenCheckpoint(absl::StrCat(dir_, "/", from));
    ASSERT_TRUE(old.ok()) << old.status();
    const std::string directory = absl::StrCat(dir_, "/", to);
    const absl::StatusOr<std::string> temporary = BeginCheckpoint(directory, old->found.step);
    ASSERT_TRUE(temporary.ok()) << temporary.status();
    v1::CheckpointManifest manifest = old->manifest;
    manifest.clear_shards();
    for (const v1::CheckpointFile& extra : manifest.extra()) {
      std::filesystem::copy_file(absl::StrCat(old->found.path, "/", extra.name()),
                                 absl::StrCat(directory, "/", *temporary, "/", extra.name()));
    }
    for (const v1::CheckpointShard& shard : old->manifest.shards()) {
      const auto reader = ShardReader::Open(old->found.path, shard);
      const auto writer = ShardWriter::Create(absl::StrCat(directory, "/", *temporary, "/", shard.file().name()));
      ASSERT_TRUE(reader.ok() && writer.ok());
      CopyDense(**reader, edit_dense, writer->get());
      CopyTables(**reader, edit_row, writer->get());
      const absl::StatusOr<v1::CheckpointShard> written = (*writer)->Finish();
      ASSERT_TRUE(written.ok()) << written.status();
      *manifest.add_shards() = *written;
    }
    const absl::StatusOr<std::string> published = PublishCheckpoint(directory, *temporary, manifest);
    ASSERT_TRUE(published.ok()) << published.status();
  }
  static void CopyDense(const ShardReader& reader, const EditDense& edit, ShardWriter* writer) {
    for (int e = 0; e < reader.shard().dense_size(); ++e) {
      const v1::DenseEntry& entry = reader.shard().dense(e);
      std::vector<float> values(static_cast<size_t>(entry.element_count()));
      ASSERT_TRUE(reader.ReadDense(e, 0, absl::MakeSpan(values)).ok());
      const DensePiece piece = {.variable = entry.has_state_of() ? entry.state_of() : entry.variable(),
                                .whole_dims = {entry.whole_dims().begin(), entry.whole_dims().end()},
                                .element_begin = entry.element_begin(),
                                .state_name = entry.state_name(),
                                .scalar = entry.scalar()};
      if (piece.state_name.empty()) edit(piece.variable, absl::MakeSpan(values));
      const absl::Status added = writer->AddDense(piece, values);
      ASSERT_TRUE(added.ok()) << added;
    }
  }
  static void CopyTables(const ShardReader& reader, const EditRow& edit, ShardWriter* writer) {
    for (int e = 0; e < reader.shard().tables_size(); ++e) {
      const v1::TableEntry& entry = reader.shard().tables(e);
      const auto width = static_cast<size_t>(entry.width()), floats = width + static_cast<size_t>(entry.state_width());
      TableLayout layout = {.table = entry.table(), .width = entry.width(), .logical_shards = entry.logical_shards()};
      for (int i = 0; i < entry.state_names_size(); ++i) {
        layout.states.emplace_back(entry.state_names(i), entry.state_widths(i));
      }
      ASSERT_TRUE(writer->BeginTable(layout).ok());
      const absl::Status copied =
          reader.ReadTable(e, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) -> absl::Status {
            std::vector<float> edited(rows.begin(), rows.end());
            for (size_t r = 0; r < ids.size(); ++r) {
              edit(entry.table(), ids[r], absl::MakeSpan(edited).subspan(r * floats, width));
            }
            return writer->AddRows(ids, edited);
          });
      ASSERT_TRUE(copied.ok()) << copied;
      ASSERT_TRUE(writer->EndTable().ok());
    }
  }
  // Trains a start for real, and expects of all that its account says to be new, but for rows, that it has moved.
  static TrainSummary ExpectNewPartsLearn(const std::string& text, const std::string& from,
                                          const std::vector<std::string>& length = {"train.epochs=3"}) {
    const std::string job = Started(text, from);
    Train("begun", job, {"train.max_steps=1", "optimizer.parameter={ name: '*' learning_rate_factor: 0 }"},
          Clusters()[0]);
    const TrainSummary summary = Train("learned", job, length, Clusters()[1]);
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

  // Expects of the rows of `shop`, which "learned" has and "begun" has made as zeros, that all have moved.
  static void ExpectRowsOfShopsMoved() {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(absl::StrCat(dir_, "/learned"));
    ASSERT_TRUE(newest.ok()) << newest.status();
    const auto table = TableReader::Open(newest->found.path, newest->manifest, "vectors");
    ASSERT_TRUE(table.ok()) << table.status();
    const auto read = table->Read(0, 64);
    ASSERT_TRUE(read.ok()) << read.status();
    const size_t floats = read->rows.size() / read->ids.size();
    for (int shop = 0; shop < 9; ++shop) {
      const int64_t id = SaltId(SlotSalt("cat", "shop"), static_cast<int64_t>(StableHash(absl::StrCat("s", shop))));
      const auto found = std::find(read->ids.begin(), read->ids.end(), id);
      ASSERT_NE(found, read->ids.end()) << shop;
      const auto row = read->rows.begin() + (found - read->ids.begin()) * static_cast<std::ptrdiff_t>(floats);
      EXPECT_EQ(std::count(row, row + 8, 0.0f), 0) << shop;
    }
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

TEST_F(StartFromTest, SilentPartsLearnAsWellAsFreshOnes) {
  // 500 steps, each on lines that the run has not seen before, and others for the evaluation.
  WriteLines("many.csv", kLines, kLines + 34000);
  WriteLines("rest.csv", kLines + 34000, kLines + 40000);
  const std::vector<std::string> length = {"train.max_steps=500", "data.train.files=many.csv",
                                           "data.eval.files=rest.csv"};
  const std::string text = Edited({{"    column { name: \"user\"", kShop + "    column { name: \"user\""},
                                   {"    column { name: \"hour\"", kPrice + "    column { name: \"hour\""},
                                   {"  layer { name: \"logit\" add { input: \"wide\"",
                                    "  layer { name: \"linear\" fc { input: \"dense\" size: 1 } }\n"
                                    "  layer { name: \"logit\" add { input: \"linear\" input: \"wide\""}});
  const std::string from = "new: \"cat.shop|dense.price|linear.*\" ";
  const TrainSummary silent = ExpectNewPartsLearn(text, from + "new_values: ZERO", length);
  EXPECT_EQ(silent.steps, 500);
  ExpectRowsOfShopsMoved();
  const TrainSummary fresh = Train("fresh", Started(text, from), length, Clusters()[1]);
  const TrainSummary old = Train("longer", Started(kJob, ""), length, Clusters()[1]);
  ASSERT_TRUE(silent.eval.has_value() && fresh.eval.has_value() && old.eval.has_value());
  EXPECT_NEAR(silent.eval->Measure("auc"), fresh.eval->Measure("auc"), 0.003);
  // The shop decides much, and the old model does not read it.
  EXPECT_GT(silent.eval->Measure("auc"), old.eval->Measure("auc") + 0.01);
}

TEST_F(StartFromTest, WithoutAColumnScoresAreThoseOfWeightsOfZero) {
  // Row 17 of the matrix reads `hour`, behind two slots of width 8 and `age`.
  WriteEdited(
      "old", "hourless",
      [](const std::string& variable, absl::Span<float> values) {
        if (variable == "deep.0.w") std::fill_n(values.begin() + 17 * 16, 16, 0.0f);
      },
      [](const std::string&, int64_t, absl::Span<float>) {});
  const std::string hour = "    column { name: \"hour\" output: \"dense\" }\n";
  const std::vector<std::string> hourless = Scores("hourless", kJob, {}, Clusters()[0]);
  EXPECT_NE(hourless, old_);
  for (const Cluster& cluster : Clusters()) {
    ExpectScores(Started(Edited({{hour, ""}}), "drop: \"dense.hour\""), hourless, 1e-6, cluster);
  }
  // Rows of the users.
  std::set<int64_t> users;
  for (int u = 0; u < 50; ++u) {
    users.insert(SaltId(SlotSalt("cat", "user"), static_cast<int64_t>(StableHash(absl::StrCat("u", u)))));
  }
  size_t silenced = 0;
  WriteEdited(
      "old", "userless", [](const std::string&, absl::Span<float>) {},
      [&](const std::string&, int64_t id, absl::Span<float> row) {
        if (users.count(id) == 0) return;
        std::fill(row.begin(), row.end(), 0.0f);
        ++silenced;
      });
  EXPECT_EQ(silenced, 2 * users.size());
  const std::string user = "    column { name: \"user\" type: TEXT output: \"cat\" }\n";
  const std::vector<std::string> userless = Scores("userless", kJob, {}, Clusters()[0]);
  EXPECT_NE(userless, old_);
  for (const Cluster& cluster : Clusters()) {
    ExpectScores(Started(Edited({{user, ""}}), "drop: \"cat.user\""), userless, 1e-6, cluster);
  }
}

TEST_F(StartFromTest, ATableThatIsCutScoresAsItsColumnsOfZero) {
  const std::string wide = Edited({{"width: 8", "width: 16"}});
  Train("wide", wide, {"train.epochs=1"}, Clusters()[0]);
  WriteEdited(
      "wide", "half", [](const std::string&, absl::Span<float>) {},
      [](const std::string& table, int64_t, absl::Span<float> row) {
        if (table == "vectors") std::fill(row.begin() + 8, row.end(), 0.0f);
      });
  const std::vector<std::string> half = Scores("half", wide, {}, Clusters()[0]);
  EXPECT_NE(half, Scores("wide", wide, {}, Clusters()[0]));
  for (const Cluster& cluster : Clusters()) {
    ExpectScores(Started(kJob, "drop: \"vectors\"", "wide"), half, 1e-6, cluster);
  }
}

TEST_F(StartFromTest, TwoCheckpointsInOneJobScoreAsEachByItself) {
  const std::string layers = R"(  layer { name: "b_fields" embedding { ids: "cat" table: "b_vectors" } }
  layer { name: "b_input" concat { input: "dense" input: "b_fields" } }
  layer { name: "b_deep" mlp { input: "b_input" sizes: [8] } }
  layer { name: "b_out" fc { input: "b_deep" size: 1 } }
)";
  const std::string own = "  loss { sigmoid_cross_entropy { logits: \"logit\" label: \"label\" } }\n";
  const std::string other = "  loss { name: \"b\" sigmoid_cross_entropy { logits: \"b_out\" label: \"label\" } }\n";
  const std::string table =
      "table { name: \"b_vectors\" width: 4 is_sparse: true is_distributed: true logical_shards: 64 }\n";
  const std::string text(kJob);
  const std::string tower = absl::StrCat(text.substr(0, text.find("model {")), "model {\n", layers, other, "}\n", table,
                                         text.substr(text.find("optimizer {")));
  Train("tower", tower, {"train.epochs=2"}, Clusters()[0]);
  const std::vector<std::string> of_tower = Scores("tower", tower, {}, Clusters()[0]);
  EXPECT_NE(of_tower, old_);
  // A prediction is that of the first loss.
  for (const bool tower_first : {false, true}) {
    const std::string losses = tower_first ? other + own : own + other;
    const std::string both = Edited({{own, layers + losses}, {"optimizer {", table + "optimizer {"}});
    for (const Cluster* const cluster : {&Clusters()[0], &Clusters()[1]}) {
      ExpectScores(Started(Started(both, ""), "", "tower"), tower_first ? of_tower : old_, 0, *cluster);
    }
  }
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
