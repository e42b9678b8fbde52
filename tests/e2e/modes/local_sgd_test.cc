// distribute.local_sgd over whole jobs: near plain training where it should be, the same bits in every run and after a
// resume, equal replicas wherever somebody looks, uneven data.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"
#include "trainer/verify/verify_split.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";

std::vector<std::string> Local(int every) {
  return {kAllReduce, "distribute.reproducible=false", absl::StrCat("distribute.local_sgd={every_steps: ", every, "}")};
}

std::vector<std::string> With(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class LocalSgdJobTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/local_sgd";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    WriteSlotData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static InProcessResult Run(InProcessRun run) {
    if (run.job_text.empty()) run.job_text = kClickJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }

  static std::string dir_;
};
std::string LocalSgdJobTest::dir_;

TEST_F(LocalSgdJobTest, AnAverageAfterEachStepOfSgdIsNearPlainTraining) {
  const std::vector<std::string> job = {"optimizer={sgd { learning_rate: 0.05 }}", "train.max_steps=30"};
  for (const int trainers : {2, 3}) {
    // The loss is that of the chief's lanes.
    const InProcessResult plain = Run({.overrides = With(job, {kAllReduce}), .trainers = trainers});
    const InProcessResult local = Run({.overrides = With(job, Local(1)), .trainers = trainers, .shuffle = 3});
    EXPECT_EQ(local.summary.examples, plain.summary.examples);
    EXPECT_NEAR(local.summary.train_loss, plain.summary.train_loss, 1e-4) << trainers;
  }
}

TEST_F(LocalSgdJobTest, OneTrainerHasTheBitsOfPlainTraining) {
  const InProcessResult plain = Run({.overrides = {"train.max_steps=100"}});
  const InProcessResult local = Run({.overrides = With(Local(7), {"train.max_steps=100"})});
  ASSERT_EQ(plain.digests.size(), 2u);
  EXPECT_EQ(local.digests, plain.digests);
}

TEST_F(LocalSgdJobTest, RunsHaveTheSameBitsAndTrain) {
  const std::vector<std::string> job = {"train.max_steps=100"};
  const InProcessResult plain = Run({.overrides = job, .trainers = 3});
  const InProcessResult a = Run({.overrides = With(job, Local(8)), .servers = 2, .trainers = 3, .shuffle = 3});
  const InProcessResult b =
      Run({.overrides = With(job, Local(8)), .servers = 1, .trainers = 3, .threads = 2, .shuffle = 8});
  ASSERT_EQ(a.digests.size(), 2u);
  EXPECT_EQ(a.digests, b.digests);
  EXPECT_NE(a.digests, plain.digests);
  EXPECT_NEAR(a.summary.train_loss, plain.summary.train_loss, 0.05 * plain.summary.train_loss);
  // With another number of trainers it is another job.
  EXPECT_NE(Run({.overrides = With(job, Local(8)), .trainers = 2}).digests, a.digests);
}

TEST_F(LocalSgdJobTest, AResumedRunHasTheBitsOfOneThatWasNotStopped) {
  // Averages after 8, 16, ...; a checkpoint after 20, 40, 60 asks for one each.
  const std::vector<std::string> job = With(Local(8), {"checkpoint.every_steps=20", "train.digest_every_steps=60",
                                                       "optimizer.schedule={exponential { "
                                                       "decay_steps: 40 decay_rate: 0.7 }}"});
  const InProcessResult whole =
      Run({.overrides = With(job, {CheckpointDir("whole"), "train.max_steps=60"}), .servers = 2, .trainers = 3});
  const std::string dir = CheckpointDir("parts");
  Run({.overrides = With(job, {dir, "train.max_steps=40"}), .servers = 2, .trainers = 3});
  const InProcessResult rest =
      Run({.overrides = With(job, {dir, "train.max_steps=60"}), .servers = 1, .trainers = 3, .resume = true});
  ASSERT_EQ(whole.digests.size(), 1u);
  EXPECT_EQ(rest.digests, whole.digests);
  EXPECT_EQ(rest.summary.steps, 60);
}

TEST_F(LocalSgdJobTest, ItsCheckpointsResumeInOtherCorners) {
  const std::string dir = CheckpointDir("corners");
  Run({.overrides = With(Local(8), {dir, "train.max_steps=20"}), .servers = 0, .trainers = 3});
  const InProcessResult servers =
      Run({.overrides = {dir, "train.max_steps=30"}, .servers = 2, .trainers = 2, .resume = true});
  EXPECT_EQ(servers.summary.steps, 30);
  const InProcessResult local =
      Run({.overrides = With(Local(4), {dir, "train.max_steps=40"}), .servers = 1, .trainers = 2, .resume = true});
  EXPECT_EQ(local.summary.steps, 40);
  EXPECT_TRUE(std::isfinite(local.summary.train_loss));
}

TEST_F(LocalSgdJobTest, EvaluationsAndDigestsSeeAnAverage) {
  // Replicas that differ would end the run at a checkpoint; evaluations of different replicas would differ from that of
  // a resumed run.
  const std::string dir = CheckpointDir("looks");
  const std::vector<std::string> job =
      With(Local(1000), {dir, "train.max_steps=30", "checkpoint.every_steps=7", "train.eval_every_steps=10",
                         "train.digest_every_steps=9", "train.epochs=100"});
  const InProcessResult result = Run({.job_text = kSlotJob, .overrides = job, .trainers = 3});
  EXPECT_EQ(result.digests.size(), 3u);
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_TRUE(absl::StrContains(result.output, "checkpoint step=28")) << result.output;
  EXPECT_TRUE(absl::StrContains(result.output, "eval step=20")) << result.output;
  // The last checkpoint has the replica that was evaluated at the end.
  const InProcessResult again = Run({.job_text = kSlotJob, .overrides = job, .trainers = 2, .resume = true});
  ASSERT_TRUE(again.summary.eval.has_value());
  EXPECT_EQ(again.summary.eval->ToString(), result.summary.eval->ToString());
}

TEST_F(LocalSgdJobTest, SparseParametersAndRunningValuesAreAveraged) {
  std::string text = kSlotJob;
  const std::string deep = "layer { name: \"deep\" fc { input: \"input\" size: 16 activation: RELU } }";
  ASSERT_TRUE(absl::StrContains(text, deep));
  text.replace(text.find(deep), deep.size(),
               "layer { name: \"normal\" batch_norm { input: \"input\" } }\n"
               "  layer { name: \"deep\" fc { input: \"normal\" size: 16 activation: RELU } }");
  const std::vector<std::string> job =
      With(Local(4), {"table[1].is_distributed=false", "table[1].dict_size=200", "train.digest_every_steps=25",
                      "checkpoint.every_steps=30", "train.max_steps=100", CheckpointDir("rows")});
  const InProcessResult a = Run({.job_text = text, .overrides = job, .trainers = 3, .shuffle = 1});
  const InProcessResult b = Run(
      {.job_text = text, .overrides = With(job, {CheckpointDir("rows2")}), .servers = 0, .trainers = 3, .shuffle = 2});
  ASSERT_EQ(a.digests.size(), 4u);
  EXPECT_EQ(a.digests, b.digests);
  ASSERT_TRUE(a.summary.eval.has_value());
  EXPECT_GT(a.summary.eval->Measure("auc"), 0.6);
}

TEST_F(LocalSgdJobTest, LossScalesAndAccumulationWork) {
  const std::vector<std::string> job = With(Local(4), {"train.max_steps=24", "train.loss_scaling={}",
                                                       "train.accumulate_steps=2", "train.digest_every_steps=12"});
  const InProcessResult a = Run({.overrides = job, .trainers = 3, .shuffle = 1});
  const InProcessResult b = Run({.overrides = job, .trainers = 3, .shuffle = 2});
  ASSERT_EQ(a.digests.size(), 2u);
  EXPECT_EQ(a.digests, b.digests);
  EXPECT_EQ(a.summary.loss_scale, b.summary.loss_scale);
}

TEST_F(LocalSgdJobTest, TrainersWithoutAnyExampleTakePart) {
  // Six examples on eight lanes: the last trainer has none, ever.
  const std::string file = dir_ + "/few.txt";
  WriteSlotLines(file, 0, 6);
  const std::vector<std::string> job =
      With(Local(3), {"data.train={files: \"few.txt\"}", "train.epochs=40", "train.max_steps=20",
                      "train.digest_every_steps=10", CheckpointDir("few"), "checkpoint.every_steps=5"});
  const InProcessResult a = Run({.job_text = kSlotJob, .overrides = job, .trainers = 4});
  EXPECT_EQ(a.summary.steps, 20);
  ASSERT_EQ(a.digests.size(), 2u);
  EXPECT_NE(a.digests[0], a.digests[1]);
}

TEST_F(LocalSgdJobTest, VerifyIsRefusedByName) {
  const absl::StatusOr<Job> job = ParseJob(kClickJob, dir_ + "/job.textproto", Local(2));
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status = VerifySplit(*job, {.steps = 1}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "distribute.local_sgd")) << status;
}

}  // namespace
}  // namespace weir
