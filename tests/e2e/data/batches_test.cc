// Several batches in one step, on the real train loop: gradient accumulation, and threads of one trainer in step with
// each other.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/saved_run.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// The slot job with random numbers in its tower.
std::string DropoutJob() {
  return absl::StrReplaceAll(kSlotJob, {{"layer { name: \"out\" fc { input: \"deep\" size: 1 } }",
                                         "layer { name: \"kept\" dropout { input: \"deep\" rate: 0.2 } }\n"
                                         "layer { name: \"out\" fc { input: \"kept\" size: 1 } }"}});
}

class BatchesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/batches";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static absl::StatusOr<InProcessResult> TryRun(InProcessRun run) {
    if (run.job_text.empty()) run.job_text = DropoutJob();
    run.directory = dir_;
    return TrainInProcess(run);
  }
  static InProcessResult Run(InProcessRun run) {
    absl::StatusOr<InProcessResult> result = TryRun(std::move(run));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  static SavedRun Train(InProcessRun run, std::string checkpoints = "") {
    static int runs = 0;
    if (checkpoints.empty()) checkpoints = absl::StrCat(dir_, "/checkpoints", runs++);
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", checkpoints, "\""));
    return OpenSaved(Run(std::move(run)), checkpoints);
  }

  static std::string dir_;
};
std::string BatchesTest::dir_;

// -------------------------------------------------------------------------------------------------------- accumulation

// In file order three batches of a lane are one that is three times as large; SGD's step is the gradient.
TEST_F(BatchesTest, AccumulatedBatchesMakeTheStepOfOneLargeBatch) {
  const std::string job = absl::StrReplaceAll(
      kSlotJob, {{"adam { learning_rate: 0.005 }", "sgd { learning_rate: 1 }"},
                 {"width: 4 is_sparse: true is_distributed: true", "width: 4 dict_size: 150 is_sparse: true"},
                 {"adagrad { learning_rate: 0.05 }", "sgd { learning_rate: 1 }"},
                 {"batch_size: 32", "shuffle: NO_SHUFFLE batch_size: 32"}});
  const SavedRun small = Train(
      {.job_text = job, .overrides = {"train.max_steps=2", "train.accumulate_steps=3"}, .servers = 2, .trainers = 3});
  const SavedRun large = Train({.job_text = job, .overrides = {"train.max_steps=2", "data.batch_size=96"}});
  EXPECT_EQ(small.result.summary.steps, 2);
  EXPECT_EQ(small.result.summary.examples, 2 * 96);
  for (const char* variable : {"deep.w", "out.w", "vectors"}) {
    const std::vector<float> expected = large.Whole(variable), got = small.Whole(variable);
    ASSERT_EQ(got.size(), expected.size()) << variable;
    double change = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], 1e-5) << variable << " " << i;
      change += std::abs(expected[i]);
    }
    EXPECT_GT(change, 0.1) << variable;
  }
}

TEST_F(BatchesTest, AccumulationGivesTheSameBitsOnEveryCluster) {
  const std::vector<std::string> overrides = {"train.accumulate_steps=3", "train.digest_every_steps=20",
                                              "train.epochs=2"};
  const InProcessResult alone = Run({.overrides = overrides, .threads = 2});
  ASSERT_FALSE(alone.digests.empty());
  EXPECT_EQ(alone.summary.examples, 2 * 2000);
  // About 63 batches an epoch, the last one short.
  EXPECT_GE(alone.summary.steps, 42);
  EXPECT_LE(alone.summary.steps, 44);
  EXPECT_EQ(Run({.overrides = overrides, .servers = 3, .trainers = 2}).digests, alone.digests);
  EXPECT_EQ(Run({.overrides = overrides, .servers = 2, .trainers = 5}).digests, alone.digests);
  const InProcessResult without = Run({.overrides = {"train.digest_every_steps=20", "train.epochs=2"}});
  EXPECT_NE(without.digests, alone.digests);
}

TEST_F(BatchesTest, ARunThatAccumulatesGoesOnWithTheBatchItHadComeTo) {
  const std::string steps = "train.accumulate_steps=3";
  const SavedRun whole = Train({.overrides = {steps, "train.max_steps=17"}, .servers = 2, .trainers = 2});
  const std::string checkpoints = dir_ + "/resumed";
  Train({.overrides = {steps, "train.max_steps=9"}, .servers = 2, .trainers = 2}, checkpoints);
  const SavedRun resumed =
      Train({.overrides = {steps, "train.max_steps=17"}, .servers = 2, .trainers = 3, .resume = true}, checkpoints);
  EXPECT_EQ(resumed.result.summary.steps, 17);
  EXPECT_EQ(resumed.values, whole.values);
  EXPECT_EQ(resumed.state, whole.state);
}

// One of 256 lines holds a number whose square is no float.
TEST_F(BatchesTest, ABatchThatIsNotFiniteSkipsItsWholeStep) {
  std::ofstream out(dir_ + "/square.txt");
  for (int i = 0; i < 256; ++i) {
    out << "1 " << i % 2 << " 2 0." << i % 10 << " " << (i == 70 ? "3e38" : "0.25") << " 1 " << i % 2 << "\n";
  }
  out.close();
  const std::string job = R"(
name: "square"
data {
  train { files: "square.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } slot { name: "id" } }
  shuffle: NO_SHUFFLE
  batch_size: 32
}
model {
  layer { name: "squared" square { input: "x" } }
  layer { name: "out" fc { input: "squared" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { lanes: 8 digest_every_steps: 1 accumulate_steps: 2 nan_policy: SKIP_STEP }
)";
  // Lanes have lines in turn, four a batch: line 70 is in the third of eight batches, so in the second of four steps.
  const InProcessResult result = Run({.job_text = job, .servers = 2, .trainers = 2});
  ASSERT_EQ(result.digests.size(), 4u);
  const auto values = [&](int i) { return result.digests[i].substr(result.digests[i].find("values=")); };
  EXPECT_EQ(values(1), values(0));
  EXPECT_NE(values(2), values(1));
  EXPECT_EQ(result.summary.skipped_steps, 1);
  std::vector<absl::Status> ends;
  EXPECT_FALSE(
      TryRun({.job_text = job, .overrides = {"train.nan_policy=STOP"}, .trainers = 2, .trainer_ends = &ends}).ok());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NE(ends[0].message().find("is not finite at step 1;"), absl::string_view::npos) << ends[0];
}

TEST_F(BatchesTest, AccumulationLearnsTheJobInAsyncToo) {
  const InProcessResult result = Run({.job_text = kSlotJob,
                                      .overrides = {"train.accumulate_steps=2", "distribute.sync=false"},
                                      .servers = 2,
                                      .trainers = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc);
  EXPECT_EQ(result.summaries[0].examples + result.summaries[1].examples, 8 * 2000);
}

// ---------------------------------------------------------------------------------------------------------- half-async

// Three threads and three accumulated batches read the same batches in the same order, so the sums have equal bits.
TEST_F(BatchesTest, ThreadsOfOneTrainerComeToTheBitsOfAccumulation) {
  const std::string steps = "train.max_steps=25";
  const SavedRun threads =
      Train({.overrides = {steps, "distribute.sync=false", "distribute.half_async={}", "train.workers=3"},
             .servers = 2,
             .threads = 2});
  const SavedRun batches =
      Train({.overrides = {steps, "distribute.sync=false", "train.accumulate_steps=3"}, .servers = 3, .threads = 1});
  EXPECT_EQ(threads.values, batches.values);
  EXPECT_EQ(threads.state, batches.state);
  EXPECT_EQ(threads.result.summary.examples, batches.result.summary.examples);
}

TEST_F(BatchesTest, ThreadsOfATrainerPushOnceForAll) {
  const std::vector<std::string> async = {"distribute.sync=false", "train.max_steps=15"};
  std::vector<std::string> threads = async;
  threads.insert(threads.end(), {"distribute.half_async={}", "train.workers=4"});
  const InProcessResult one = Run({.overrides = async, .trainers = 2});
  const InProcessResult four = Run({.overrides = threads, .trainers = 2, .threads = 2});
  EXPECT_EQ(four.summaries[1].examples, 4 * one.summaries[1].examples);
  // Rows that several threads name leave once.
  EXPECT_LT(four.counters[1].rows_pushed, 3 * one.counters[1].rows_pushed);
  EXPECT_GT(four.counters[1].rows_pushed, one.counters[1].rows_pushed);
}

TEST_F(BatchesTest, HalfAsyncLearnsTheJob) {
  const InProcessResult result = Run({.job_text = kSlotJob,
                                      .overrides = {"distribute.sync=false", "distribute.half_async={}",
                                                    "train.workers=2", "train.accumulate_steps=1"},
                                      .servers = 2,
                                      .trainers = 2,
                                      .threads = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc);
  EXPECT_EQ(result.summaries[0].examples + result.summaries[1].examples, 8 * 2000);
}

TEST_F(BatchesTest, AnErrorInOneThreadEndsTheOthers) {
  // Lines of the second batch of lane 0: only worker 1 of the first trainer meets it, in its first step.
  std::ofstream out(dir_ + "/broken.txt");
  for (int i = 0; i < 256; ++i) out << "1 " << i % 2 << " 1 " << (i == 6 ? "3e38" : "1e+0") << "\n";
  out.close();
  const std::string job = R"(
name: "broken"
data {
  train { files: "broken.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT } }
  shuffle: NO_SHUFFLE
  batch_size: 32
}
model {
  layer { name: "squared" square { input: "x" } }
  layer { name: "out" fc { input: "squared" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { sgd {} }
distribute { sync: false half_async {} }
train { lanes: 8 workers: 3 }
)";
  std::vector<absl::Status> ends;
  EXPECT_FALSE(TryRun({.job_text = job, .trainers = 2, .trainer_ends = &ends}).ok());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NE(ends[0].message().find("is not finite at step 0;"), absl::string_view::npos) << ends[0];
}

}  // namespace
}  // namespace weir
