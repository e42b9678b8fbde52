// Checkpoints that a chief writes and loads through its client.
#include "pserver/client/client.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/checkpoints." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  ClusterOptions WithDirectory(const HandMadeJob& job) {
    ClusterOptions options = OptionsFor(job);
    options.checkpoint_dir = dir_;
    return options;
  }

  // Saves a checkpoint as the chief does at a step border.
  absl::StatusOr<std::string> Save(InProcessCluster& cluster, int64_t step) {
    ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir_, step));
    v1::ControlRequest request;
    request.mutable_save()->set_name(temporary);
    request.mutable_save()->set_step(step);
    ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, cluster.client(0).member().Control(request));
    v1::CheckpointManifest manifest;
    manifest.set_job("job");
    manifest.set_step(step);
    for (const v1::ControlReply& reply : replies) {
      if (!manifest.add_shards()->ParseFromString(reply.shard())) return absl::DataLossError("no CheckpointShard");
    }
    return PublishCheckpoint(dir_, temporary, manifest);
  }
  // Makes a checkpoint of step 6 of two async servers, of which server 0 had applied 3 steps and server 1 had applied
  // 5.
  void SaveApart(const HandMadeJob& job);
  // Loads that checkpoint, trains from step 3 to step 8, and returns the steps that each server applies.
  std::vector<int64_t> AppliedAfter(const HandMadeJob& job);
  absl::Status Load(InProcessCluster& cluster, int64_t step) {
    v1::ControlRequest request;
    request.mutable_load()->set_name(StepDirectoryName(step));
    return cluster.client(0).member().Control(request).status();
  }

  std::string dir_;
};

TEST_F(CheckpointTest, ResumedOnAnotherClusterTheBitsAreThoseOfAnUndisturbedRun) {
  const HandMadeJob job{.servers = 2, .trainers = 2};
  auto undisturbed = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(undisturbed->RunTrainers([&](int t) { return JoinAndTrain(*undisturbed, job, t, 8); }).ok());
  const auto wanted = undisturbed->GetDigest();
  ASSERT_TRUE(wanted.ok());

  InProcessCluster::Digest at_five;
  {
    auto first = MakeCluster(WithDirectory(job));
    ASSERT_TRUE(first->RunTrainers([&](int t) { return JoinAndTrain(*first, job, t, 5); }).ok());
    const auto path = Save(*first, 5);
    ASSERT_TRUE(path.ok()) << path.status();
    at_five = *first->GetDigest();
    const auto manifest = VerifyCheckpoint(*path);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->values_digest(), at_five.values);
    EXPECT_EQ(manifest->state_digest(), at_five.state);
  }
  for (const HandMadeJob& other :
       {HandMadeJob{.servers = 3, .trainers = 4}, HandMadeJob{.servers = 1, .trainers = 1}, job}) {
    auto second = MakeCluster(WithDirectory(other));
    const absl::Status status = second->RunTrainers([&](int t) -> absl::Status {
      RETURN_IF_ERROR(second->client(t).Join());
      if (t == 0) RETURN_IF_ERROR(Load(*second, 5));
      second->client(t).steps().SetFirstStep(5);
      RETURN_IF_ERROR(second->client(t).board().Exchange("loaded", "").status());
      if (t == 0) {
        ASSIGN_OR_RETURN(const InProcessCluster::Digest loaded, second->GetDigest());
        EXPECT_EQ(loaded, at_five);
      }
      RETURN_IF_ERROR(second->client(t).board().Exchange("checked", "").status());
      return TrainSteps(*second, other, t, 5, 8);
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*second->GetDigest(), *wanted) << other.servers << " servers, " << other.trainers << " trainers";
  }
}

void CheckpointTest::SaveApart(const HandMadeJob& job) {
  v1::CheckpointManifest manifests[2];
  {
    // Server 0 saves after 3 steps, server 1 after 5: two complete checkpoints, of which one shard each is used.
    auto first = MakeCluster(WithDirectory(job));
    ASSERT_TRUE(JoinAndTrain(*first, job, 0, 3).ok());
    ASSERT_TRUE(Save(*first, 3).ok());
    ASSERT_TRUE(TrainSteps(*first, job, 0, 3, 5).ok());
    ASSERT_TRUE(Save(*first, 5).ok());
  }
  for (int s = 0; s < 2; ++s) {
    const absl::StatusOr<v1::CheckpointManifest> manifest =
        VerifyCheckpoint(absl::StrCat(dir_, "/", StepDirectoryName(s == 0 ? 3 : 5)));
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    ASSERT_EQ(manifest->shards_size(), 2);
    EXPECT_THAT(manifest->shards(s).trainer_steps(), ElementsAre(s == 0 ? 3 : 5));
    manifests[s] = *manifest;
  }
  const absl::StatusOr<std::string> temporary = BeginCheckpoint(dir_, 6);
  ASSERT_TRUE(temporary.ok());
  v1::CheckpointManifest both;
  both.set_job("job");
  both.set_step(6);
  for (int s = 0; s < 2; ++s) {
    *both.add_shards() = manifests[s].shards(s);
    std::filesystem::copy(absl::StrCat(dir_, "/", StepDirectoryName(s == 0 ? 3 : 5), "/", ShardFileName(s)),
                          absl::StrCat(dir_, "/", *temporary, "/", ShardFileName(s)));
  }
  both.mutable_data()->add_trainer_steps(3);
  both.mutable_data()->set_trainers(1);
  const absl::StatusOr<std::string> published = PublishCheckpoint(dir_, *temporary, both);
  ASSERT_TRUE(published.ok()) << published.status();
}

std::vector<int64_t> CheckpointTest::AppliedAfter(const HandMadeJob& job) {
  auto second = MakeCluster(WithDirectory(job));
  const absl::Status joined = second->client(0).Join();
  EXPECT_TRUE(joined.ok()) << joined;
  const absl::Status loaded = Load(*second, 6);
  EXPECT_TRUE(loaded.ok()) << loaded;
  second->client(0).steps().SetFirstStep(3);
  const absl::Status end = TrainSteps(*second, job, 0, 3, 8);
  EXPECT_TRUE(end.ok()) << end;
  std::vector<int64_t> applied;
  for (int server = 0; server < job.servers; ++server) {
    applied.push_back(second->servers().server(server).counters().Value("push.applied"));
  }
  return applied;
}

TEST_F(CheckpointTest, AServerThatSavedLaterDropsTheStepsItHolds) {
  const HandMadeJob job{.servers = 2, .sync = false};
  SaveApart(job);
  EXPECT_THAT(AppliedAfter(job), ElementsAre(5, 3));
}

// Block b was on server 0 and misses steps 3 and 4.
TEST_F(CheckpointTest, NoStepIsMissingOfABlockThatComesFromASlowerServer) {
  SaveApart({.servers = 2, .sync = false, .bias_server = 0});
  EXPECT_THAT(AppliedAfter({.servers = 2, .sync = false, .bias_server = 1}), ElementsAre(5, 5));
}

// Server 1 gives block b away; it does not repeat the steps that its other blocks have.
TEST_F(CheckpointTest, ABlockThatHasGoneElsewhereChangesNothing) {
  SaveApart({.servers = 2, .sync = false, .bias_server = 1});
  EXPECT_THAT(AppliedAfter({.servers = 2, .sync = false, .bias_server = 0}), ElementsAre(5, 3));
}

// Servers 2 and 3 hold halves of the former server 1.
TEST_F(CheckpointTest, OnMoreServersEachDropsWhatItsSourceHeld) {
  SaveApart({.servers = 2, .sync = false});
  EXPECT_THAT(AppliedAfter({.servers = 4, .sync = false}), ElementsAre(5, 5, 3, 3));
}

TEST_F(CheckpointTest, AStateThatIsNotRestoredIsSeenInTheDigest) {
  const HandMadeJob job;
  auto first = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(JoinAndTrain(*first, job, 0, 5).ok());
  const auto path = Save(*first, 5);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto before = first->GetDigest();
  // Fault under test: the checkpoint lacks Adam's second moment.
  v1::CheckpointManifest manifest = *ReadManifest(*path);
  v1::CheckpointShard* const shard = manifest.mutable_shards(0);
  int removed = 0;
  for (int i = shard->dense_size() - 1; i >= 0; --i) {
    if (shard->dense(i).state_name() != "moment2") continue;
    shard->mutable_dense()->DeleteSubrange(i, 1);
    ++removed;
  }
  ASSERT_EQ(removed, 1);
  const std::string temporary = *BeginCheckpoint(dir_, 6);
  std::filesystem::copy_file(*path + "/" + shard->file().name(), dir_ + "/" + temporary + "/" + shard->file().name());
  manifest.set_step(6);
  ASSERT_TRUE(PublishCheckpoint(dir_, temporary, manifest).ok());

  auto second = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(second->client(0).Join().ok());
  EXPECT_STATUS(Load(*second, 6), kFailedPrecondition, "moment2");
  EXPECT_TRUE(Load(*second, 5).ok());
  EXPECT_EQ(*second->GetDigest(), *before);
}

TEST_F(CheckpointTest, ADirectoryThatIsNotSharedIsRefusedAtJoin) {
  const HandMadeJob job;
  auto cluster = MakeCluster(WithDirectory(job));
  const std::string other = dir_ + ".elsewhere";
  std::filesystem::create_directories(other);
  ClientOptions options{.plan = job.Plan(),
                        .job_name = "job",
                        .plan_text = job.PlanText(),
                        .checkpoint_dir = other,
                        .process = "host:2000",
                        .arithmetic = "avx2",
                        .transport = &cluster->transport(0),
                        .clock = Clock::Real(),
                        .pool = cluster->pool()};
  {
    auto client = Client::Create(options);
    EXPECT_STATUS((*client)->Join(), kFailedPrecondition, "checkpoint.per_host");
  }
  options.checkpoint_per_host = true;
  {
    auto client = Client::Create(options);
    EXPECT_TRUE((*client)->Join().ok());
  }
  std::filesystem::remove_all(other);
}

TEST_F(CheckpointTest, APublishedCheckpointIsNotWrittenOver) {
  const HandMadeJob job;
  auto cluster = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 1).ok());
  const auto path = Save(*cluster, 1);
  ASSERT_TRUE(path.ok()) << path.status();
  v1::ControlRequest request;
  request.mutable_save()->set_name("step-000000000001");
  EXPECT_STATUS(cluster->client(0).member().Control(request).status(), kInvalidArgument,
                "is no name of a checkpoint that is being written");
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
}

TEST_F(CheckpointTest, TroubleOfTheDiskIsToldAtOnce) {
  const HandMadeJob job;
  auto cluster = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 1).ok());
  // A file is in the place where the server wants a directory.
  const std::string in_the_way = dir_ + "/tmp-step-000000000001-0123456789abcdef";
  std::ofstream(in_the_way) << "here";
  v1::ControlRequest request;
  request.mutable_save()->set_name("tmp-step-000000000001-0123456789abcdef");
  const absl::Time start = absl::Now();
  EXPECT_STATUS(cluster->client(0).member().Control(request).status(), kFailedPrecondition,
                "tmp-step-000000000001-0123456789abcdef");
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  std::filesystem::remove(in_the_way);
}

TEST_F(CheckpointTest, ASaveThatIsAskedForAgainIsDoneOnce) {
  const HandMadeJob job;
  ClusterOptions options = WithDirectory(job);
  options.deadlines.set_rpc_s(0.2);
  auto cluster = MakeCluster(std::move(options));
  std::atomic<int> controls{0};
  cluster->transport(0).OnCall([&](const CallInfo& info) {
    if (info.method != Method::kControl) return Fate::kPass;
    ++controls;
    return info.tries == 0 ? Fate::kDropReply : Fate::kPass;
  });
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 1).ok());
  const auto path = Save(*cluster, 1);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_GE(controls, 2);
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
}

}  // namespace
}  // namespace weir
