// The ways to train besides sync with lanes, and what can go wrong in a step, on the real train loop: async, average by
// trainers, lanes off, optimizers side by side, values that are not finite, tables that are full, dense tables, weights
// of ids.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/atomic_file.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/row_file.h"
#include "framework/checkpoint/table_reader.h"
#include "gtest/gtest.h"
#include "proto/residuals.pb.h"
#include "tests/testing/jobs/saved_run.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/jobs/square_job.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"
#include "trainer/files/stream_rule.h"

namespace weir {
namespace {

class ModesTest : public SlotJobTest {
 protected:
  // The checkpoint at the end of a run.
  static SavedRun Train(InProcessRun run) {
    static int runs = 0;
    const std::string name = absl::StrCat("checkpoints", runs++);
    run.overrides.push_back(CheckpointIn(name));
    return OpenSaved(Run(std::move(run)), Path(name));
  }

  static void ExpectLearned(const InProcessResult& result) {
    ASSERT_TRUE(result.summary.eval.has_value());
    EXPECT_EQ(result.summary.eval->samples, 1000);
    EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc);
  }
};

TEST_F(ModesTest, SyncLearnsTheJob) {
  const InProcessResult result = Run({.servers = 2, .trainers = 2});
  ExpectLearned(result);
  EXPECT_EQ(result.summary.examples + result.summary.left_out, 8 * 2000);
}

// ----------------------------------------------------------------------------------------------------------- residuals

TEST_F(ModesTest, ResidualsOfAllTrainersAreSavedInAsyncAndResumed) {
  const std::string dir = Path("residuals");
  const auto train = [&](bool resume) {
    const InProcessResult result =
        Run({.overrides = {"distribute.sync=false", "distribute.wire.push=WIRE_INT8", "train.epochs=1",
                           "checkpoint.every_steps=20", absl::StrCat("checkpoint.dir=\"", dir, "\"")},
             .servers = 2,
             .trainers = 3,
             .resume = resume});
    EXPECT_EQ(result.summaries.size(), 3u);
    // By name and first lane, those that are not zero.
    std::map<std::pair<std::string, int>, std::string> found;
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return found;
    const absl::StatusOr<std::string> bytes = ReadWholeFile(newest->found.path + "/residuals");
    v1::Residuals residuals;
    EXPECT_TRUE(bytes.ok() && residuals.ParseFromString(*bytes)) << bytes.status();
    for (const v1::Residual& of : residuals.residuals()) {
      const bool any = std::any_of(of.values().begin(), of.values().end(), [](float v) { return v != 0; });
      if (any) found[{of.name(), of.lane()}] = of.SerializeAsString();
    }
    return found;
  };
  const auto first = train(/*resume=*/false);
  for (const char* name : {"vectors", "deep.w"}) {
    // Lanes 0 to 2, 3 to 5 and 6 to 7 in their largest aligned runs.
    for (const int lane : {0, 2, 3, 4, 6}) EXPECT_TRUE(first.contains({name, lane})) << name << " " << lane;
  }
  // There is nothing left to read: what comes back is all that there is to save.
  EXPECT_EQ(train(/*resume=*/true), first);
}

TEST_F(ModesTest, OnlyTheTrainerThatWritesHearsTheResidualsOfTheOthers) {
  const std::string dir = Path("residuals_of_others");
  std::atomic<size_t> heard[3] = {};
  const auto train = [&](bool resume) {
    for (std::atomic<size_t>& each : heard) each = 0;
    Run({.overrides = {"distribute.reproducible=false", "distribute.wire.push=WIRE_INT8", "train.epochs=1",
                       "checkpoint.every_steps=5", absl::StrCat("checkpoint.dir=\"", dir, "\"")},
         .servers = 2,
         .trainers = 3,
         .resume = resume,
         .between = [&heard](int trainer, Transport* servers) {
           // Adds up what a trainer hears in exchanges of residuals.
           return Tapped(servers, [&heard, trainer](TappedCall call) {
             const auto asked = call.As<v1::ExchangeRequest>();
             if (asked && asked->key().compare(0, 9, "residuals") == 0) {
               call.OnAnswer([&heard, trainer](const absl::StatusOr<Slices>& answer) {
                 if (answer.ok()) heard[trainer] += TotalSize(*answer);
               });
             }
             call.GoOn();
           });
         }});
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir);
    EXPECT_TRUE(newest.ok()) << newest.status();
    const absl::StatusOr<std::string> file = ReadWholeFile(newest->found.path + "/residuals");
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : "";
  };
  const std::string residuals = train(/*resume=*/false);
  ASSERT_GT(residuals.size(), 10000u);
  // Ten checkpoints and more, of two other trainers.
  EXPECT_GT(heard[0], 5 * residuals.size());
  // Acknowledgements.
  EXPECT_LT(heard[1], 1000u);
  EXPECT_LT(heard[2], 1000u);
  // There is nothing left to read: each gets its own back.
  EXPECT_TRUE(train(/*resume=*/true) == residuals);
  EXPECT_GT(heard[1], residuals.size() / 5);
  EXPECT_LT(heard[1] + heard[2], residuals.size());
}

// ----------------------------------------------------------------------------------------------------------- row files

TEST_F(ModesTest, ATableBeginsWithTheRowsOfRowFilesWhateverItsShards) {
  const SavedRun first = Train({.overrides = {"train.max_steps=60"}, .servers = 2});
  const absl::StatusOr<TableReader> table =
      TableReader::Open(first.checkpoint.found.path, first.checkpoint.manifest, "vectors");
  ASSERT_TRUE(table.ok()) << table.status();
  const absl::StatusOr<TableRowsRead> all = table->Read(0, 4096);
  ASSERT_TRUE(all.ok() && all->ids.size() > 90) << all.status();
  // All rows without their state in one file; in a later one a row with other values, and one that is gone.
  TableLayout layout = table->layout();
  const size_t floats = static_cast<size_t>(layout.width) + static_cast<size_t>(layout.state_width());
  layout.states.clear();
  std::map<int64_t, std::vector<float>> wanted;
  std::vector<float> values;
  for (size_t i = 0; i < all->ids.size(); ++i) {
    const float* const row = all->rows.data() + i * floats;
    wanted[all->ids[i]].assign(row, row + 4);
    values.insert(values.end(), row, row + 4);
  }
  const int64_t changed = all->ids[0], gone = all->ids[1];
  wanted[changed] = {1, 2, 3, 4};
  wanted.erase(gone);
  const auto write = [&](const std::string& name, absl::Span<const int64_t> ids, absl::Span<const float> rows,
                         absl::Span<const int64_t> removed) {
    const auto writer = RowFileWriter::Create(Path(name), layout, "job", 60, -1);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Add(ids, rows, removed).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  };
  write("all.rows", all->ids, values, {});
  write("later.rows", {changed}, wanted[changed], {gone});
  // One step changes the rows of its batch; the others are as they were loaded.
  const SavedRun second = Train(
      {.overrides = {"train.max_steps=1", "table[0].load=[\"all.rows\", \"later.rows\"]", "table[0].logical_shards=64"},
       .servers = 3,
       .trainers = 2});
  const absl::StatusOr<TableReader> loaded =
      TableReader::Open(second.checkpoint.found.path, second.checkpoint.manifest, "vectors");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::StatusOr<TableRowsRead> rows = loaded->Read(0, 64);
  ASSERT_TRUE(rows.ok()) << rows.status();
  size_t same = 0;
  for (size_t i = 0; i < rows->ids.size(); ++i) {
    const float* const row = rows->rows.data() + i * floats;
    const auto was = wanted.find(rows->ids[i]);
    same += was != wanted.end() && std::equal(row, row + 4, was->second.begin());
    // New state, unless the step has changed it.
    if (was == wanted.end() || !std::equal(row, row + 4, was->second.begin())) continue;
    EXPECT_EQ(row[4], 0) << rows->ids[i];
  }
  EXPECT_GE(same, 40u);
  EXPECT_GE(rows->ids.size(), wanted.size());
  // Rows of another width are refused with both.
  const auto refused = TryRun({.overrides = {"train.max_steps=1", "table[1].load=\"all.rows\""}});
  EXPECT_NE(refused.status().message().find("all.rows has rows of width 4 (of table 'vectors'); the job's has 1"),
            std::string::npos)
      << refused.status();
}

// --------------------------------------------------------------------------------------------------------------- async

TEST_F(ModesTest, AsyncLearnsTheJobHoweverPushesApply) {
  for (const char* apply : {"TRANSACTION", "EAGER"}) {
    const InProcessResult result =
        Run({.overrides = {"distribute.sync=false", absl::StrCat("distribute.async_apply=", apply)},
             .servers = 2,
             .trainers = 3});
    ExpectLearned(result);
    int64_t examples = 0;
    for (const TrainSummary& summary : result.summaries) {
      EXPECT_GT(summary.examples, 0) << apply;
      examples += summary.examples;
    }
    EXPECT_EQ(examples + result.summary.left_out, 8 * 2000) << apply;
  }
}

// The job has 101 ids in a table that every batch names nearly all of: most rows come out of the cache.
TEST_F(ModesTest, AsyncWithCachedRowsLearnsTheJobAndAsksForFewerRows) {
  const std::vector<std::string> async = {"distribute.sync=false"};
  const InProcessResult plain = Run({.overrides = async, .servers = 2, .trainers = 2});
  std::vector<std::string> cached = async;
  for (const char* table : {"0", "1"})
    cached.push_back(absl::StrCat("table[", table, "].cache={rows: 80 max_steps: 6}"));
  const InProcessResult result = Run({.overrides = cached, .servers = 2, .trainers = 2});
  ExpectLearned(result);
  for (size_t t = 0; t < 2; ++t) EXPECT_LT(result.counters[t].rows_pulled, plain.counters[t].rows_pulled * 2 / 3) << t;
}

// Stream 0, of trainer 0, has twice the examples of stream 1: the job's seed decides which lines of a round are whose.
TEST_F(ModesTest, AnAsyncEvaluationOfATrainerThatHadEndedIsSaidToBeWithoutIt) {
  {
    std::ofstream out(Path("uneven.txt"));
    for (int64_t i = 0; i < 2000; ++i) {
      const bool of_stream_0 = PlaceInRound(/*seed=*/3, i / 2, 0, 2) == i % 2;
      out << (of_stream_0 || i < 1000 ? SlotLine(i) : "no example") << "\n";
    }
  }
  const InProcessResult result =
      Run({.overrides = {"distribute.sync=false", "data.train.files=[\"uneven.txt\"]", "train.lanes=2",
                         "train.epochs=1", "train.eval_every_steps=30", "data.bad_line=SKIP"},
           .trainers = 2});
  ASSERT_LT(result.summaries[1].steps, 60);
  ASSERT_GE(result.summaries[0].steps, 60);
  for (const char* line : {"eval step=30 examples=1000 ", "eval step=60 examples="}) {
    EXPECT_NE(result.output.find(line), std::string::npos) << line << "\n" << result.output;
  }
  const size_t late = result.output.find("eval step=60 ");
  ASSERT_NE(late, std::string::npos);
  const std::string rest = result.output.substr(late, result.output.find('\n', late) - late);
  EXPECT_NE(rest.find("live=1 (parameters moved while it ran: async; without trainer 1)"), std::string::npos) << rest;
}

// With nobody beside it, a trainer of an async job sees its own step before the next one begins: that is sync.
TEST_F(ModesTest, OneAsyncTrainerComesToTheBitsOfSync) {
  const std::string steps = "train.max_steps=40";
  const SavedRun sync = Train({.overrides = {steps}, .servers = 2});
  const SavedRun transaction = Train({.overrides = {steps, "distribute.sync=false"}, .servers = 2});
  const SavedRun eager =
      Train({.overrides = {steps, "distribute.sync=false", "distribute.async_apply=EAGER"}, .servers = 3});
  EXPECT_EQ(transaction.values, sync.values);
  EXPECT_EQ(transaction.state, sync.state);
  EXPECT_EQ(eager.values, sync.values);
  EXPECT_EQ(eager.state, sync.state);
}

// ------------------------------------------------------------------------------------------------- average by trainers

constexpr char kLinearJob[] = R"(
name: "linear"
data {
  train { files: "linear.txt" }
  multi_slot { slot { name: "y" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } }
  shuffle: NO_SHUFFLE
  batch_size: 8
}
model {
  layer { name: "out" fc { input: "x" size: 1 bias: false weight_initializer { constant { value: 0 } } } }
  loss { square_error { input: "out" label: "y" } }
}
optimizer { sgd { learning_rate: 0.5 } }
train { max_steps: 1 lanes: 8 }
)";

// One trainer's rows meet nobody else's: the step's learning rate decides, and a resume goes on with the next step's.
TEST_F(ModesTest, AsyncTablesOfOneTrainerComeToTheBitsOfSyncUnderASchedule) {
  const std::string schedule = "optimizer.schedule={exponential{decay_steps: 7 decay_rate: 0.5} warm_up{steps: 3}}";
  const SavedRun sync = Train({.overrides = {schedule, "train.max_steps=40"}, .servers = 2});
  const std::vector<std::string> loose = {schedule, "distribute.async_tables=true", "distribute.reproducible=false"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = loose;
    all.push_back(more);
    return all;
  };
  EXPECT_EQ(Train({.overrides = with("train.max_steps=40"), .servers = 2}).values, sync.values);
  const std::string checkpoints = absl::StrCat("checkpoint.dir=\"", Path("scheduled"), "\"");
  for (const char* steps : {"train.max_steps=17", "train.max_steps=40"}) {
    std::vector<std::string> overrides = with(steps);
    overrides.push_back(checkpoints);
    Run({.overrides = overrides, .servers = 2, .resume = std::string(steps) == "train.max_steps=40"});
  }
  const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path("scheduled"));
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->manifest.step(), 40);
  EXPECT_EQ(newest->manifest.values_digest(), sync.values);
}

// Of eight lines each lane has one.
TEST_F(ModesTest, AverageByTrainersIsTheMeanOfTheTrainersMeans) {
  double y[8], x[8][2];
  std::ofstream out(Path("linear.txt"));
  for (int i = 0; i < 8; ++i) {
    y[i] = i + 1;
    x[i][0] = 0.1 * (i % 3 + 1);
    x[i][1] = 0.2 * (i % 4 + 1);
    out << absl::StrFormat("1 %.1f 2 %.1f %.1f\n", y[i], x[i][0], x[i][1]);
  }
  out.close();
  const std::vector<std::string> by_trainers = {"distribute.average=BY_TRAINERS", "distribute.reproducible=false"};
  const SavedRun three = Train({.job_text = kLinearJob, .overrides = by_trainers, .servers = 2, .trainers = 3});
  const SavedRun samples = Train({.job_text = kLinearJob, .servers = 2, .trainers = 3});
  const SavedRun one = Train({.job_text = kLinearJob, .overrides = by_trainers});
  // Lanes of the three trainers: 0-2, 3-5, 6-7. The prediction is 0, so a sample's gradient is -2 y x.
  const int begin[] = {0, 3, 6, 8};
  int64_t line[8];  // of each lane
  for (int lane = 0; lane < 8; ++lane) line[lane] = PlaceInRound(/*seed=*/1, /*round=*/0, lane, 8);
  for (int j = 0; j < 2; ++j) {
    double of_means = 0, of_samples = 0;
    for (int t = 0; t < 3; ++t) {
      double mean = 0;
      for (int i = begin[t]; i < begin[t + 1]; ++i) {
        mean += 2 * y[line[i]] * x[line[i]][j] / (begin[t + 1] - begin[t]);
        of_samples += 2 * y[line[i]] * x[line[i]][j] / 8;
      }
      of_means += mean / 3;
    }
    ASSERT_GT(std::abs(of_means - of_samples), 0.01);
    EXPECT_NEAR(three.Whole("out.w").at(j), 0.5 * of_means, 1e-5);
    EXPECT_NEAR(samples.Whole("out.w").at(j), 0.5 * of_samples, 1e-5);
    EXPECT_NEAR(one.Whole("out.w").at(j), 0.5 * of_samples, 1e-5);
  }
}

TEST_F(ModesTest, AverageByTrainersLearnsTheJob) {
  ExpectLearned(Run(
      {.overrides = {"distribute.average=BY_TRAINERS", "distribute.reproducible=false"}, .servers = 2, .trainers = 3}));
}

TEST_F(ModesTest, OneTrainersAverageIsThatOfItsSamples) {
  const std::string steps = "train.max_steps=40";
  const SavedRun by_samples = Train({.overrides = {steps}, .servers = 2});
  const SavedRun by_trainers =
      Train({.overrides = {steps, "distribute.average=BY_TRAINERS", "distribute.reproducible=false"}, .servers = 2});
  const std::vector<float> expected = by_samples.Whole("deep.w"), got = by_trainers.Whole("deep.w");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
}

// ------------------------------------------------------------------------------------------------------------ lanes: 0

TEST_F(ModesTest, WithoutLanesItLearnsTheJob) {
  const InProcessResult result =
      // Streams are as even as lines, so a batch that the trainers do not share evenly would end them at different
      // steps.
      Run({.overrides = {"train.lanes=0", "distribute.reproducible=false", "data.batch_size=33"},
           .servers = 2,
           .trainers = 3});
  ExpectLearned(result);
  EXPECT_EQ(result.summary.examples + result.summary.left_out, 8 * 2000);
}

// A step over the whole data set is the same step, whoever does which part of it.
TEST_F(ModesTest, WithoutLanesOneStepFromOneStateIsTheSame) {
  const std::vector<std::string> one_step = {"data.batch_size=2048", "train.max_steps=1"};
  std::vector<std::string> no_lanes = one_step;
  no_lanes.insert(no_lanes.end(), {"train.lanes=0", "distribute.reproducible=false"});
  // SGD: its step is the gradient.
  const std::string job =
      absl::StrReplaceAll(kSlotJob, {{"adam { learning_rate: 0.005 }", "sgd { learning_rate: 1 }"}});
  const SavedRun lanes = Train({.job_text = job, .overrides = one_step});
  const SavedRun one = Train({.job_text = job, .overrides = no_lanes});
  const SavedRun two = Train({.job_text = job, .overrides = no_lanes, .servers = 2, .trainers = 2});
  for (const SavedRun* trained : {&lanes, &one, &two})
    EXPECT_EQ(trained->result.summary.examples + trained->result.summary.left_out, 2000);
  for (const char* variable : {"deep.w", "out.w"}) {
    const std::vector<float> expected = lanes.Whole(variable), a = one.Whole(variable), b = two.Whole(variable);
    ASSERT_EQ(a.size(), expected.size());
    ASSERT_EQ(b.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(a[i], expected[i], 1e-5) << variable << " " << i;
      EXPECT_NEAR(b[i], expected[i], 1e-5) << variable << " " << i;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- tables

TEST_F(ModesTest, TablesWithDifferentOptimizersTrainSideBySide) {
  std::string layers, tables, logit = "layer { name: \"logit\" add {";
  const std::map<std::string, std::string> rules = {{"sgd", "sgd { learning_rate: 0.5 }"},
                                                    {"momentum", "momentum { learning_rate: 0.1 }"},
                                                    {"adagrad", "adagrad { learning_rate: 0.1 }"},
                                                    {"adam", "adam { learning_rate: 0.01 }"},
                                                    {"ftrl", "ftrl {}"}};
  for (const auto& [name, rule] : rules) {
    absl::StrAppend(&layers, "layer { name: \"sum_", name, "\" embedding { ids: \"cat\" table: \"by_", name,
                    "\" pooling: SUM } } layer { name: \"out_", name, "\" fc { input: \"sum_", name,
                    "\" size: 1 } }\n");
    absl::StrAppend(&logit, " input: \"out_", name, "\"");
    absl::StrAppend(&tables, "table { name: \"by_", name,
                    "\" width: 3 is_sparse: true is_distributed: true optimizer { ", rule, " } }\n");
  }
  const std::string base(kSlotJob);
  const size_t model = base.find("model {"), optimizer = base.find("optimizer { adam { learning_rate: 0.005");
  ASSERT_NE(optimizer, std::string::npos);
  const std::string job = absl::StrCat(base.substr(0, model), "model {\n", layers, logit, " } }\n",
                                       "loss { sigmoid_cross_entropy { logits: \"logit\" label: \"label\" } }\n}\n",
                                       tables, base.substr(optimizer));
  const InProcessResult alone = Run({.job_text = job});
  const InProcessResult cluster = Run({.job_text = job, .servers = 3, .trainers = 4});
  ExpectLearned(alone);
  EXPECT_EQ(alone.digests.size(), 5u);
  EXPECT_EQ(cluster.digests, alone.digests);
  const std::map<std::string, int> states = {
      {"by_sgd", 0}, {"by_momentum", 3}, {"by_adagrad", 3}, {"by_adam", 7}, {"by_ftrl", 6}};
  ASSERT_EQ(alone.plan.tables_size(), 5);
  for (const v1::PlacedTable& table : alone.plan.tables())
    EXPECT_EQ(table.state_width(), states.at(table.name())) << table.name();
}

TEST_F(ModesTest, AFullTableEndsEveryTrainerWithItsName) {
  std::vector<absl::Status> ends;
  const std::string job = absl::StrReplaceAll(kSlotJob, {{"width: 4 is_sparse", "width: 4 dict_size: 20 is_sparse"}});
  const auto result = TryRun({.job_text = job, .servers = 2, .trainers = 3, .trainer_ends = &ends});
  EXPECT_FALSE(result.ok());
  ASSERT_EQ(ends.size(), 3u);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
    EXPECT_NE(end.message().find("table vectors is full"), absl::string_view::npos) << end;
    EXPECT_NE(end.message().find("table's capacity 20; raise dict_size"), absl::string_view::npos) << end;
  }
}

TEST_F(ModesTest, ASparseTableThatIsHeldDenseTrainsToTheBitsOfADenseGradient) {
  const std::string held = absl::StrReplaceAll(
      kSlotJob, {{"width: 4 is_sparse: true is_distributed: true", "width: 4 dict_size: 150 is_sparse: true"},
                 {"width: 1 is_sparse: true is_distributed: true optimizer { ftrl {} }",
                  "width: 1 dict_size: 150 is_sparse: true optimizer { sgd { learning_rate: 0.5 } }"},
                 {"adagrad { learning_rate: 0.05 }", "sgd { learning_rate: 0.5 }"}});
  const InProcessResult alone = Run({.job_text = held});
  ExpectLearned(alone);
  EXPECT_EQ(alone.plan.tables_size(), 0);
  EXPECT_EQ(Run({.job_text = held, .servers = 2, .trainers = 3}).digests, alone.digests);
  // SGD moves nothing where the gradient is zero, so rows and the whole matrix come to the same values.
  const std::string dense = absl::StrReplaceAll(held, {{"is_sparse: true", "is_sparse: false"}});
  EXPECT_EQ(Run({.job_text = dense, .servers = 2, .trainers = 2}).digests, alone.digests);
}

// --------------------------------------------------------------------------------------------------- not finite values

// Returns the part of a digest line behind its step.
std::string Values(const std::string& line) { return line.substr(line.find("values=")); }

TEST_F(ModesTest, AStepThatIsNotFiniteIsSkippedByAllServersAndCounted) {
  // Lanes have lines in turn, four a step: line 84 is in the third step, the third of lane 4, of the second trainer.
  WriteSquares(Path("square.txt"), [](int line) { return line == 84; });
  const InProcessResult result =
      Run({.job_text = kSquareJob, .overrides = {"train.nan_policy=SKIP_STEP"}, .servers = 3, .trainers = 2});
  ASSERT_EQ(result.digests.size(), 8u);
  for (int step = 1; step < 8; ++step) {
    const std::string before = Values(result.digests[step - 1]), after = Values(result.digests[step]);
    EXPECT_EQ(after == before, step == 2) << "step " << step << "\n" << before << "\n" << after;
  }
  EXPECT_EQ(result.summary.steps, 8);
  for (const TrainSummary& summary : result.summaries) EXPECT_EQ(summary.skipped_steps, 1);
  EXPECT_NE(result.summary.DoneLine().find(" skipped_steps=1"), std::string::npos) << result.summary.DoneLine();
  // The mean loss is that of the steps that took effect.
  for (const TrainSummary& summary : result.summaries)
    EXPECT_TRUE(std::isfinite(summary.train_loss)) << summary.train_loss;
}

TEST_F(ModesTest, AStepThatIsNotFiniteStopsTheJobWithTheVariablesName) {
  WriteSquares(Path("square.txt"), [](int line) { return line == 84; });
  std::vector<absl::Status> ends;
  EXPECT_FALSE(TryRun({.job_text = kSquareJob, .servers = 2, .trainers = 2, .trainer_ends = &ends}).ok());
  ASSERT_EQ(ends.size(), 2u);
  for (const absl::Status& end : ends) {
    EXPECT_NE(end.message().find("'sigmoid_cross_entropy.loss' is not finite at step 2"), absl::string_view::npos)
        << end;
    EXPECT_NE(end.message().find("SKIP_STEP"), absl::string_view::npos) << end;
  }
}

// ------------------------------------------------------------------------------------------------------ weights of ids

constexpr char kWeightedJob[] = R"(
name: "weighted"
data {
  train { files: "weighted.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "ids" } }
  shuffle: NO_SHUFFLE
  batch_size: 32
}
model {
  layer { name: "vector" embedding { ids: "ids" table: "vectors" pooling: SUM } }
  layer { name: "out" fc { input: "vector" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { sgd { learning_rate: 0.5 } } }
optimizer { sgd { learning_rate: 0.1 } }
train { digest_every_steps: 10 }
)";

// An id of weight 2 is the id given twice: doubling is exact, in the sum and in the gradient, as long as no other
// example of the lane's batch (lines i, i + 8, i + 16, i + 24) has the id.
TEST_F(ModesTest, AWeightOfTwoIsTheIdGivenTwice) {
  const auto digests = [&](const std::function<std::string(int64_t)>& ids) {
    std::ofstream out(Path("weighted.txt"));
    for (int64_t i = 0; i < 640; ++i) out << absl::StrFormat("1 %d %-20s\n", SlotLabel(i), ids(10 + i * 5 % 37));
    out.close();
    return Run({.job_text = kWeightedJob, .servers = 2, .trainers = 3}).digests;
  };
  const auto weighted = digests([](int64_t id) { return absl::StrCat("2 ", id, ":2 ", id + 40, ":1"); });
  const auto twice = digests([](int64_t id) { return absl::StrCat("3 ", id, " ", id, " ", id + 40); });
  const auto once = digests([](int64_t id) { return absl::StrCat("2 ", id, " ", id + 40); });
  ASSERT_EQ(weighted.size(), 2u);
  EXPECT_EQ(weighted, twice);
  EXPECT_NE(weighted, once);
}

}  // namespace
}  // namespace weir
