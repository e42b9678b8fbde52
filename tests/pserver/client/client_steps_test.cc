// Calls of a step that are lost, spoiled, repeated, refused or read-only.
#include "pserver/client/client.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"
#include "tests/testing/tapped_transport.h"

namespace weir {
namespace {

TEST(ClientTest, ALastPartWhoseReplyIsLostCountsOnce) {
  const HandMadeJob job{.servers = 2, .trainers = 2};
  InProcessCluster::Digest digests[2];
  for (bool lossy : {false, true}) {
    ClusterOptions options = OptionsFor(job);
    options.deadlines.set_rpc_s(0.2);
    auto cluster = MakeCluster(std::move(options));
    std::atomic<int> lost{0};
    for (int t = 0; lossy && t < 2; ++t) {
      cluster->transport(t).OnCall([&lost](const CallInfo& info) {
        if (!info.last || info.tries > 0 || info.step % 2 == 0) return Fate::kPass;
        ++lost;
        return Fate::kDropReply;
      });
    }
    ASSERT_TRUE(cluster->RunTrainers([&](int t) { return JoinAndTrain(*cluster, job, t, 4); }).ok());
    auto digest = cluster->GetDigest();
    ASSERT_TRUE(digest.ok());
    digests[lossy ? 1 : 0] = *digest;
    EXPECT_EQ(lost, lossy ? 8 : 0);
    if (lossy) {
      EXPECT_GE(cluster->client(0).counters().retries, 4);
    }
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// --- ClientOptions::receives_beside_sends.

class BesideSendsTest : public ::testing::Test {
 protected:
  BesideSendsTest() {
    ClusterOptions options = ShortLeases(job_);
    options.deadlines.set_progress_deadline_s(3);
    options.receives_beside_sends = true;
    cluster_ = MakeCluster(std::move(options));
  }
  // Joins and receives the parameters.
  void Start() {
    ASSERT_TRUE(client().Join().ok());
    ASSERT_TRUE(ReceiveHandMade(job_, &client().steps(), &params_).ok());
  }
  Client& client() { return cluster_->client(0); }

  const HandMadeJob job_;
  std::unique_ptr<InProcessCluster> cluster_;
  HandMadeParams params_;
};

TEST_F(BesideSendsTest, TheNewBlocksAreAskedForBeforeThePushesAreAcknowledged) {
  Start();
  std::atomic<bool> pushed{false}, pulled{false};
  std::atomic<int> withheld{0};
  cluster_->transport(0).OnCall([&](const CallInfo& info) {
    if (info.method == Method::kPull && pushed) pulled = true;
    if (info.method != Method::kPush || pulled) return Fate::kPass;
    pushed = true;
    ++withheld;
    return Fate::kDropReply;
  });
  // The acknowledgement comes with a repeat that is made only after the pull.
  ASSERT_TRUE(RunHandMadeStep(job_, 0, {.step = 0}, &client().steps(), &params_).ok());
  EXPECT_TRUE(pulled);
  EXPECT_GT(withheld, 0);
  EXPECT_GT(client().counters().retries, 0);
}

TEST_F(BesideSendsTest, LastPartsLeaveWithThePulls) {
  Start();
  client().steps().SendPushesWithPulls();
  std::vector<Method> calls;
  cluster_->transport(0).OnCall([&](const CallInfo& info) {
    if (info.method == Method::kPush || info.method == Method::kPull) calls.push_back(info.method);
    return Fate::kPass;
  });
  ASSERT_TRUE(client().steps().BeginStep(0, /*read_only=*/false).ok());
  ASSERT_TRUE(client().steps().FinishSends(/*samples=*/1, v1::APPLY).ok());
  EXPECT_TRUE(calls.empty());
  StepOutcome outcome;
  ASSERT_TRUE(client().steps().FinishReceives(&outcome).ok());
  EXPECT_EQ(outcome.version, 1);
  // To each server a push, and its pull behind it.
  ASSERT_FALSE(calls.empty());
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i % 2 == 0 ? Method::kPush : Method::kPull) << i;
}

TEST_F(BesideSendsTest, APushThatNeverArrivesIsNamed) {
  Start();
  cluster_->transport(0).OnCall(
      [](const CallInfo& info) { return info.method == Method::kPush ? Fate::kDropRequest : Fate::kPass; });
  const absl::Status status = RunHandMadeStep(job_, 0, {.step = 0}, &client().steps(), &params_).status();
  EXPECT_STATUS(status, kDeadlineExceeded, "pushes of step 0; ");
  EXPECT_STATUS(status, kDeadlineExceeded, ": version 1");
}

TEST_F(BesideSendsTest, ARefusedPushEndsTheStepAtOnce) {
  Start();
  ASSERT_TRUE(client().member().Done().ok());
  const absl::Time start = absl::Now();
  ASSERT_TRUE(client().steps().BeginStep(0, /*read_only=*/false).ok());
  ASSERT_TRUE(client().steps().FinishSends(/*samples=*/1, v1::APPLY).ok());
  EXPECT_STATUS(client().steps().FinishReceives(nullptr), kFailedPrecondition, "it has said that it is done");
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

// The server is alive but its answers to one call are lost: the error names the outcome of the last try.
TEST(ClientTest, AWaitThatEndsAtItsDeadlineSaysWhatTheLastTryMet) {
  const HandMadeJob job;
  ClusterOptions options = ShortLeases(job);
  options.deadlines.set_progress_deadline_s(1);
  auto cluster = MakeCluster(std::move(options));
  ASSERT_TRUE(cluster->client(0).Join().ok());
  cluster->transport(0).OnCall(
      [](const CallInfo& info) { return info.method == Method::kPull ? Fate::kDropRequest : Fate::kPass; });
  HandMadeParams params;
  EXPECT_STATUS(ReceiveHandMade(job, &cluster->client(0).steps(), &params), kDeadlineExceeded,
                "; the last try: no answer in time");
}

TEST(ClientTest, ReadOnlyStepsReadTheNewestRowsAndLeaveNoTrace) {
  const HandMadeJob job{.servers = 2};
  auto cluster = MakeCluster(OptionsFor(job));
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 2).ok());
  const auto before = cluster->GetDigest();
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.steps().BeginStep(2, /*read_only=*/true).ok());
  const std::vector<int64_t> ids = {123456789, INT64_MIN, 77};
  std::vector<float> rows(12, -9);
  const ParamChannel::TableRows pull{"t", 4, &ids, rows.data()};
  ASSERT_TRUE(client.steps().PullRows({&pull, 1}).ok());
  for (float v : rows) EXPECT_NE(v, -9);
  Tensor gradient(v1::FLOAT32, {5});
  const ParamChannel::LaneTensor lane{0, &gradient};
  EXPECT_STATUS(client.steps().SendDense({"b", 1, 5}, {&lane, 1}), kFailedPrecondition, "read-only");
  EXPECT_STATUS(client.steps().FinishSends(1, v1::APPLY), kFailedPrecondition, "read-only");
  EXPECT_EQ(*cluster->GetDigest(), *before);
}

TEST(ClientTest, APullThatIsSpoiledOnTheWayIsAskedForOnceMore) {
  const HandMadeJob job;
  auto cluster = MakeCluster(OptionsFor(job));
  HandMadeParams wanted;
  {
    ASSERT_TRUE(cluster->client(0).Join().ok());
    ASSERT_TRUE(ReceiveHandMade(job, &cluster->client(0).steps(), &wanted).ok());
  }
  for (const int spoils : {1, 1000}) {
    auto another = MakeCluster(OptionsFor(job));
    // Flips a bit in the last byte of the first `spoils` answers to pulls that have a payload.
    std::atomic<int> left = spoils;
    TappedTransport spoiling(&another->transport(0), [&left](TappedCall call) {
      if (call.method == Method::kPull) {
        call.OnAnswer([&left](absl::StatusOr<Slices>& answer) {
          if (!answer.ok() || answer->size() <= 1 || left.fetch_sub(1) <= 0) return;
          std::string bytes = Flatten(*answer);
          bytes.back() = static_cast<char>(bytes.back() ^ 1);
          answer = Slices{Slice::Own(std::move(bytes))};
        });
      }
      call.GoOn();
    });
    auto client = Client::Create({.plan = job.Plan(),
                                  .job_name = "job",
                                  .plan_text = job.PlanText(),
                                  .process = "host:2000",
                                  .arithmetic = "avx2",
                                  .transport = &spoiling,
                                  .clock = Clock::Real(),
                                  .pool = another->pool()});
    ASSERT_TRUE((*client)->Join().ok());
    HandMadeParams params;
    const absl::Status status = ReceiveHandMade(job, &(*client)->steps(), &params);
    if (spoils > 1) {
      EXPECT_STATUS(status, kDataLoss, "checksum");
      continue;
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ((*client)->counters().retries, 1);
    EXPECT_EQ(params.w, wanted.w);
    EXPECT_EQ(params.b, wanted.b);
    EXPECT_EQ(params.e, wanted.e);
  }
}

TEST(ClientTest, WhatThePlanDoesNotHaveIsRefusedBeforeItLeaves) {
  const HandMadeJob job;
  auto cluster = MakeCluster(OptionsFor(job));
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.Join().ok());
  ASSERT_TRUE(client.steps().BeginStep(0, false).ok());
  Tensor wrong(v1::FLOAT32, {4});
  const ParamChannel::LaneTensor lane{0, &wrong};
  EXPECT_STATUS(client.steps().SendDense({"nothing", 0, 4}, {&lane, 1}), kInvalidArgument, "no block nothing");
  EXPECT_STATUS(client.steps().SendDense({"b", 0, 5}, {&lane, 1}), kInvalidArgument, "has 4 elements, the block has 5");
  SelectedRows rows{.ids = {1, 7}};
  rows.values.Resize(v1::FLOAT32, {1, 4});
  const ParamChannel::LaneRows of_lane{0, &rows};
  EXPECT_STATUS(client.steps().SendRows({"t", -1, 0}, 4, {&of_lane, 1}), kInvalidArgument,
                "2 rows come with 4 values; 8 are wanted");
  EXPECT_STATUS(client.steps().Receive({"b", 0, 5}, &wrong), kInvalidArgument, "has 5 floats");
  const std::vector<int64_t> ids = {1};
  const ParamChannel::TableRows pull{"nothing", 4, &ids, nullptr};
  EXPECT_STATUS(client.steps().PullRows({&pull, 1}), kInvalidArgument, "table nothing");
}

}  // namespace
}  // namespace weir
