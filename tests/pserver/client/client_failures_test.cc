// Deaths, silences and errors of processes of a job: each trainer and server hears of them, with their cause.
#include "pserver/client/client.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// The lease on the other server runs longer, since the trainer has called it since.
TEST(ClientTest, ATrainerThatHasSleptBeyondItsLeaseOnOneServerEndsAloneInAsync) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .sync = false};
  ClusterOptions options = OptionsFor(job);
  options.fake_clock = true;
  options.deadlines.set_lease_s(10);
  auto cluster = MakeCluster(std::move(options));
  ASSERT_TRUE(cluster->client(0).Join().ok());
  bool lose = false;
  cluster->transport(1).OnCall(
      [&](const CallInfo& info) { return lose && info.server == 0 ? Fate::kDropRequest : Fate::kPass; });
  auto sleeper = cluster->MakeClient(1, "sleeper:7");
  ASSERT_TRUE(sleeper.ok() && (*sleeper)->Join().ok());
  (*sleeper)->member().heartbeats().Round();
  cluster->Advance(absl::Seconds(9));
  lose = true;
  (*sleeper)->member().heartbeats().Round();
  lose = false;
  cluster->Advance(absl::Seconds(2));
  // Twice, since the second would carry the error that the first has met.
  for (int times = 0; times < 2; ++times) (*sleeper)->member().heartbeats().Round();
  EXPECT_STATUS((*sleeper)->member().JobStatus(), kFailedPrecondition, "was declared dead");
  (*sleeper)->member().ReportFailure((*sleeper)->member().JobStatus());
  for (int s = 0; s < 2; ++s) EXPECT_TRUE(cluster->servers().server(s).JobStatus().ok()) << s;
}

TEST(ClientTest, ADeadServerIsNamedByEveryTrainerWithinTwoLeases) {
  const HandMadeJob job{.servers = 2, .trainers = 2};
  auto cluster = MakeCluster(ShortLeases(job));
  for (int t = 0; t < 2; ++t) {
    cluster->transport(t).OnCall(
        [](const CallInfo& info) { return info.server == 1 && info.step == 3 ? Fate::kKillServer : Fate::kPass; });
  }
  std::vector<absl::Status> statuses(2);
  const absl::Time start = absl::Now();
  (void)cluster->RunTrainers(
      [&](int t) { return statuses[static_cast<size_t>(t)] = JoinAndTrain(*cluster, job, t, 1000000); });
  // A trainer may hear of it from server 0, which the other trainer has told.
  for (const absl::Status& status : statuses) {
    EXPECT_STATUS(status, kUnavailable, "server 1");
    EXPECT_THAT(std::string(status.message()), HasSubstr("is dead"));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  // A thread of the trainer that found it tells the other server too.
  const absl::Time told = absl::Now() + absl::Seconds(20);
  while (cluster->servers().server(0).JobStatus().ok() && absl::Now() < told) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kUnavailable, "server 1");
}

TEST(ClientTest, ATrainerKilledBetweenTwoPartsIsNamedByTheOthers) {
  const HandMadeJob job{.servers = 2, .trainers = 3};
  auto cluster = MakeCluster(ShortLeases(job));
  cluster->transport(1).OnCall([](const CallInfo& info) {
    return info.method == Method::kPush && info.step == 2 && info.server == 1 ? Fate::kKillTrainer : Fate::kPass;
  });
  std::vector<absl::Status> statuses(3);
  (void)cluster->RunTrainers(
      [&](int t) { return statuses[static_cast<size_t>(t)] = JoinAndTrain(*cluster, job, t, 1000000); });
  for (int t : {0, 2}) EXPECT_STATUS(statuses[static_cast<size_t>(t)], kUnavailable, "trainer 1 (host:2001) is dead");
  EXPECT_FALSE(statuses[1].ok());
  // The step that was cut in two has not taken effect on the server that misses a part.
  EXPECT_EQ(cluster->servers().server(1).Version(), 2);
}

TEST(ClientTest, ATrainerSilentForLessThanALeaseChangesNothing) {
  const HandMadeJob job{.trainers = 2};
  InProcessCluster::Digest digests[2];
  for (bool silent : {false, true}) {
    ClusterOptions options = ShortLeases(job);
    options.deadlines.set_lease_s(4);
    options.deadlines.set_rpc_s(0.2);
    auto cluster = MakeCluster(std::move(options));
    std::atomic<bool> slept{false};
    std::thread waker;
    if (silent) {
      FaultyTransport& transport = cluster->transport(1);
      transport.OnCall([&](const CallInfo& info) {
        if (info.step != 3 || slept.exchange(true)) return Fate::kPass;
        waker = std::thread([&transport] {
          absl::SleepFor(absl::Seconds(1));
          transport.Revive();
        });
        return Fate::kKillTrainer;
      });
    }
    const absl::Status status = cluster->RunTrainers([&](int t) { return JoinAndTrain(*cluster, job, t, 6); });
    if (waker.joinable()) waker.join();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(slept, silent);
    auto digest = cluster->GetDigest();
    ASSERT_TRUE(digest.ok());
    digests[silent ? 1 : 0] = *digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(ClientTest, AFailureReportedByOneTrainerEndsAllWithItsTextAndCode) {
  const HandMadeJob job{.servers = 2, .trainers = 3};
  auto cluster = MakeCluster(ShortLeases(job));
  std::vector<absl::Status> statuses(3);
  (void)cluster->RunTrainers([&](int t) -> absl::Status {
    absl::Status& status = statuses[static_cast<size_t>(t)];
    status = JoinAndTrain(*cluster, job, t, t == 2 ? 3 : 1000000);
    if (t == 2)
      cluster->client(t).member().ReportFailure(absl::DataLossError("part-7.gz ends in the middle of a line"));
    return status;
  });
  for (int t : {0, 1}) {
    EXPECT_STATUS(statuses[static_cast<size_t>(t)], kDataLoss, "trainer 2 (host:2002): part-7.gz ends in the middle");
  }
}

// A server that has told everyone exits; a trainer that wrote to it once more would wait for it in vain.
TEST(ClientTest, AServerThatHasSaidWhyTheJobFailedIsNotTold) {
  for (const bool by_heartbeat : {true, false}) {
    const HandMadeJob job{.servers = 2, .trainers = 2};
    ClusterOptions options = OptionsFor(job);
    options.fake_clock = true;
    options.deadlines.set_lease_s(0.5);  // by the real clock it is how long the last word is repeated
    auto cluster = MakeCluster(std::move(options));
    std::atomic<bool> gone{false};
    std::vector<std::atomic<int>> letters(2);
    cluster->transport(0).OnCall([&](const CallInfo& info) {
      const bool is_letter = info.method == Method::kHeartbeat;
      if (gone && is_letter) ++letters[static_cast<size_t>(info.server)];
      // Server 0 has reported the failure in its answer to another call, server 1 in none.
      return gone || (is_letter && !by_heartbeat) ? Fate::kDropRequest : Fate::kPass;
    });
    for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
    cluster->client(1).member().ReportFailure(absl::DataLossError("a torn file"));
    if (by_heartbeat) {
      cluster->client(0).member().heartbeats().Round();
      EXPECT_STATUS(cluster->client(0).member().JobStatus(), kDataLoss, "a torn file");
    } else {
      EXPECT_STATUS(cluster->client(0).board().Exchange("k", "").status(), kAborted, "a torn file");
    }
    gone = true;
    cluster->client(0).member().ReportFailure(cluster->client(0).member().JobStatus());
    EXPECT_EQ(letters[0], 0);
    EXPECT_EQ(letters[1] == 0, by_heartbeat);
  }
}

// Another trainer may have reported the death a moment before this one's lease ran out.
TEST(ClientTest, AServerThatFallsSilentOverTheLastWordIsNotWaitedFor) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = OptionsFor(job);
  options.fake_clock = true;
  auto cluster = MakeCluster(std::move(options));
  bool dead = false, later = false;
  int letters = 0;
  cluster->transport(0).OnCall([&](const CallInfo& info) {
    if (!dead || info.server != 1) return Fate::kPass;
    // Letters sent by the heart-beat do not count.
    if (!later) ++letters;
    if (letters > 1 || later) return Fate::kDropRequest;
    later = true;
    cluster->Advance(absl::Seconds(61));  // the lease of OptionsFor
    later = false;
    return Fate::kDropRequest;
  });
  ASSERT_TRUE(cluster->client(0).Join().ok());
  dead = true;
  cluster->client(0).member().ReportFailure(absl::UnavailableError("server 1 is dead"));
  // At most one more after the time for an answer, not all ten.
  EXPECT_LE(letters, 2);
  EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kUnavailable, "server 1 is dead");
}

TEST(ClientTest, AnErrorOfAServerReachesEveryTrainerWithServerStepAndTable) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .table_capacity = 60};
  auto cluster = MakeCluster(ShortLeases(job));
  std::vector<absl::Status> statuses(2);
  (void)cluster->RunTrainers(
      [&](int t) { return statuses[static_cast<size_t>(t)] = JoinAndTrain(*cluster, job, t, 50); });
  for (const absl::Status& status : statuses) {
    EXPECT_STATUS(status, kResourceExhausted, "is full");
    EXPECT_THAT(std::string(status.message()), HasSubstr(": step "));
  }
}

}  // namespace
}  // namespace weir
