#include "trainer/checkpoints/checkpointing.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTrainData[] = "a.tsv: 120 bytes, xxh3 0123456789abcdef\n";

class CheckpointingTest : public testing::Test {
 protected:
  // A cluster of one trainer, with its chief's Checkpointing.
  struct Run {
    std::unique_ptr<InProcessCluster> cluster;
    std::unique_ptr<Checkpointing> checkpointing;
  };

  void SetUp() override {
    dir_ = testing::TempDir() + "/checkpointing." + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    config_.set_name("job");
    config_.mutable_checkpoint()->set_dir(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  Run Start(const std::string& train_data = kTrainData) {
    ClusterOptions options = OptionsFor(job_);
    options.checkpoint_dir = dir_;
    auto cluster = InProcessCluster::Create(std::move(options));
    CHECK(cluster.ok()) << cluster.status();
    Run run{.cluster = *std::move(cluster)};
    CHECK_EQ(run.cluster->client(0).Join(), absl::OkStatus());
    run.checkpointing = std::make_unique<Checkpointing>(dir_, config_, run.cluster->options().plan,
                                                        TrainFiles{.description = train_data}, &run.cluster->client(0));
    return run;
  }

  // Trains from step `first` until `steps` have been made.
  void Train(Run& run, int first, int steps) {
    HandMadeParams params;
    ASSERT_EQ(ReceiveHandMade(job_, &run.cluster->client(0).steps(), &params), absl::OkStatus());
    for (int step = first; step < steps; ++step) {
      ASSERT_EQ(RunHandMadeStep(job_, 0, {.step = step}, &run.cluster->client(0).steps(), &params).status(),
                absl::OkStatus());
    }
  }

  absl::StatusOr<std::string> Save(Run& run, int64_t step, SavedTrainers trainers = {},
                                   const std::optional<MetricResult>& eval = std::nullopt) {
    trainers.state.set_stream_scheme(kStreamScheme);
    return run.checkpointing->Save(step, step, trainers, eval);
  }

  // Returns the names of the checkpoints in the directory, oldest first.
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const absl::StatusOr<std::vector<CheckpointPath>> all = ListCheckpoints(dir_);
    CHECK(all.ok()) << all.status();
    for (const CheckpointPath& each : *all) names.push_back(each.name);
    return names;
  }

  const HandMadeJob job_{.servers = 2};
  v1::JobConfig config_;
  std::string dir_;
};

TEST_F(CheckpointingTest, AResumeFindsTheStateThatWasSaved) {
  InProcessCluster::Digest saved;
  {
    Run run = Start();
    ASSERT_EQ(run.checkpointing->StartAfresh(), absl::OkStatus());
    Train(run, 0, 3);
    SavedTrainers trainers = {.statistics = "statistics of a.tsv"};
    trainers.residuals = [](const TakeBytes& take) {
      RETURN_IF_ERROR(take("first piece, "));
      return take("second piece");
    };
    const absl::StatusOr<std::string> path = Save(run, 3, trainers);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(*path, dir_ + "/step-000000000003");
    EXPECT_THAT(run.checkpointing->saved_trainer_steps(), ElementsAre(3));
    saved = *run.cluster->GetDigest();
  }
  Run run = Start();
  const absl::StatusOr<ResumePoint> point = run.checkpointing->Resume();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_TRUE(point->beginning.resumed());
  EXPECT_EQ(point->beginning.step(), 3);
  EXPECT_THAT(point->beginning.trainer_steps(), ElementsAre(3));
  EXPECT_EQ(point->beginning.statistics(), "statistics of a.tsv");
  EXPECT_EQ(point->beginning.checkpoint(), "step-000000000003");
  EXPECT_TRUE(point->beginning.not_evaluated());
  std::string residuals;
  EXPECT_EQ(ReadInPieces(point->residuals,
                         [&](std::string_view piece) {
                           residuals += piece;
                           return absl::OkStatus();
                         }),
            absl::OkStatus());
  EXPECT_EQ(residuals, "first piece, second piece");
  EXPECT_TRUE(*run.cluster->GetDigest() == saved);
}

TEST_F(CheckpointingTest, NothingIsFoundInAnEmptyDirectory) {
  Run run = Start();
  const absl::StatusOr<ResumePoint> point = run.checkpointing->Resume();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_FALSE(point->beginning.resumed());
}

TEST_F(CheckpointingTest, AFreshRunSetsEarlierCheckpointsAside) {
  {
    Run run = Start();
    ASSERT_TRUE(Save(run, 0).ok());
  }
  Run run = Start();
  ASSERT_EQ(run.checkpointing->StartAfresh(), absl::OkStatus());
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_FALSE(run.checkpointing->Resume()->beginning.resumed());
}

TEST_F(CheckpointingTest, OtherTrainingDataIsRefused) {
  {
    Run run = Start();
    Train(run, 0, 1);
    ASSERT_TRUE(Save(run, 1).ok());
  }
  Run run = Start("a.tsv: 130 bytes, xxh3 fedcba9876543210\n");
  EXPECT_EQ(run.checkpointing->Resume().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointingTest, CheckpointsThatAreAllDamagedAreNotTakenForNone) {
  {
    Run run = Start();
    Train(run, 0, 1);
    ASSERT_TRUE(Save(run, 1).ok());
  }
  fs::remove(dir_ + "/step-000000000001/MANIFEST");
  Run run = Start();
  const absl::Status status = run.checkpointing->Resume().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr("no checkpoint in " + dir_ + " is complete"));
}

TEST_F(CheckpointingTest, CheckpointsOfAJobWithAnotherNameAreNotTakenForDamagedOnes) {
  {
    Run run = Start();
    Train(run, 0, 1);
    ASSERT_TRUE(Save(run, 1).ok());
  }
  config_.set_name("renamed");
  Run run = Start();
  const absl::Status status = run.checkpointing->Resume().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.message(), HasSubstr("are of job 'job', and this is job 'renamed'"));
}

TEST_F(CheckpointingTest, AnErrorNamesTheStepThatIsLostAndTheNewestSavedOne) {
  Run run = Start();
  ASSERT_EQ(run.checkpointing->StartAfresh(), absl::OkStatus());
  SavedTrainers broken;
  broken.residuals = [](const TakeBytes&) { return absl::ResourceExhaustedError("the disk is full"); };
  const absl::Status first = Save(run, 0, broken).status();
  EXPECT_EQ(first.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(first.message(),
            "the checkpoint of step 0 was not saved: the disk is full; there is no checkpoint in " + dir_);
  Train(run, 0, 1);
  ASSERT_TRUE(Save(run, 1).ok());
  Train(run, 1, 2);
  EXPECT_EQ(Save(run, 2, broken).status().message(),
            "the checkpoint of step 2 was not saved: the disk is full; the newest in " + dir_ +
                " is step-000000000001, from which --resume goes on");
  EXPECT_THAT(Names(), ElementsAre("step-000000000001"));
}

TEST_F(CheckpointingTest, AnEvaluationIsAddedToTheLastCheckpoint) {
  Run run = Start();
  const MetricResult eval = {.samples = 10, .measures = {{"loss", 0.5}, {"auc", 0.75}}};
  EXPECT_EQ(run.checkpointing->RecordEvaluation(eval, nullptr), absl::OkStatus());  // there is none yet
  const absl::StatusOr<std::string> path = Save(run, 0);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_FALSE(ReadManifest(*path)->has_eval_loss());
  ASSERT_EQ(run.checkpointing->RecordEvaluation(eval, nullptr), absl::OkStatus());
  EXPECT_EQ(ReadManifest(*path)->eval_loss(), 0.5);
  EXPECT_EQ(ReadManifest(*path)->eval_auc(), 0.75);
}

TEST_F(CheckpointingTest, AFigureThatIsNoNumberIsLeftOut) {
  Run run = Start();
  const MetricResult eval = {.samples = 10,
                             .measures = {{"loss", 0.5}, {"auc", std::numeric_limits<double>::quiet_NaN()}}};
  const absl::StatusOr<std::string> path = Save(run, 0, {}, eval);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(ReadManifest(*path)->has_eval_loss());
  EXPECT_FALSE(ReadManifest(*path)->has_eval_auc());
}

TEST_F(CheckpointingTest, OldCheckpointsAreRemoved) {
  config_.mutable_checkpoint()->set_keep_last(2);
  Run run = Start();
  for (int step = 0; step < 4; ++step) {
    if (step > 0) Train(run, step - 1, step);
    ASSERT_TRUE(Save(run, step).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("step-000000000002", "step-000000000003"));
}

}  // namespace
}  // namespace weir
