// Ends of jobs: at a step border that all trainers share, or in async each for itself.
#include "pserver/client/client.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "framework/base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

TEST(ClientTest, AServerThatHasAcknowledgedTheEndMayGo) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = OptionsFor(job);
  options.fake_clock = true;
  options.deadlines.set_rpc_s(1);
  auto cluster = MakeCluster(std::move(options));
  std::atomic<bool> at_the_end{false};
  std::atomic<int> asked{0};
  const std::thread::id heartbeats = std::this_thread::get_id();
  // Server 1 is dead; server 0 exits when its only trainer is done.
  cluster->transport(0).OnCall([&](const CallInfo& info) {
    if (at_the_end && info.server == 1 && std::this_thread::get_id() != heartbeats) ++asked;
    const bool gone = info.server == 1 || cluster->servers().server(0).Finished();
    return at_the_end && gone ? Fate::kDropRequest : Fate::kPass;
  });
  ASSERT_TRUE(cluster->client(0).Join().ok());
  at_the_end = true;
  absl::Status done;
  std::thread trainer([&] { done = cluster->client(0).member().Done(); });
  while (!cluster->servers().server(0).Finished()) std::this_thread::yield();
  // The client asks server 1 again after it has read the answer of server 0.
  while (asked < 2) {
    cluster->Advance(absl::Milliseconds(20));
    absl::SleepFor(absl::Milliseconds(1));
  }
  cluster->Advance(absl::Seconds(61));  // the lease of OptionsFor
  trainer.join();
  EXPECT_STATUS(done, kUnavailable, "server 1");
}

TEST(ClientTest, AnEndThatOneAsksForComesToAllAtOneStepBorder) {
  const HandMadeJob job{.servers = 2, .trainers = 3};
  auto cluster = MakeCluster(OptionsFor(job));
  std::vector<std::vector<StepOutcome>> outcomes(3);
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(cluster->client(t).Join());
    if (t == 1) cluster->client(t).member().RequestStop();
    RETURN_IF_ERROR(TrainSteps(*cluster, job, t, 0, 1000, &outcomes[static_cast<size_t>(t)]));
    return cluster->client(t).member().Done(/*stopped=*/true);
  });
  ASSERT_TRUE(status.ok()) << status;
  for (int s = 0; s < 2; ++s) EXPECT_TRUE(cluster->servers().server(s).Report().stopped);
  for (const auto& each : outcomes) {
    ASSERT_EQ(each.size(), outcomes[0].size());
    EXPECT_LT(each.size(), 1000u);
    EXPECT_TRUE(each.back().stop);
  }
}

TEST(ClientTest, AServerAskedToStopTellsItToServer0ThroughTheTrainers) {
  const HandMadeJob job{.servers = 2, .trainers = 2};
  auto cluster = MakeCluster(ShortLeases(job));
  cluster->servers().server(1).RequestStop();
  std::vector<std::vector<StepOutcome>> outcomes(2);
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(cluster->client(t).Join());
    return TrainSteps(*cluster, job, t, 0, 1000000, &outcomes[static_cast<size_t>(t)]);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(outcomes[0].size(), outcomes[1].size());
  EXPECT_TRUE(outcomes[0].back().stop);
}

TEST(ClientTest, AsyncTrainersGoTheirOwnWayAndEnd) {
  for (bool eager : {false, true}) {
    const HandMadeJob job{.servers = 2, .trainers = 3, .sync = false, .eager = eager};
    ClusterOptions options = OptionsFor(job);
    options.deadlines.set_rpc_s(0.3);
    options.faults = {.drop_request = 0.02, .drop_reply = 0.02, .duplicate = 0.05, .delay = 0.05};
    auto cluster = MakeCluster(std::move(options));
    const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
      // Trainers run different numbers of steps, since none waits for another.
      RETURN_IF_ERROR(JoinAndTrain(*cluster, job, t, 5 + 3 * t));
      return cluster->client(t).member().Done();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(cluster->servers().server(s).Finished());
      EXPECT_EQ(cluster->servers().server(s).Version(), 5 + 8 + 11);
      EXPECT_FALSE(cluster->servers().server(s).Report().stopped);
    }
  }
}

}  // namespace
}  // namespace weir
