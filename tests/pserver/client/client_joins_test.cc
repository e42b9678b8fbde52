// Joins of clients and servers: who is refused, who is missed, and what the others hear of it.
#include "pserver/client/client.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "pserver/protocol/handshake.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

TEST(ClientTest, WrongIdsAndServerCountsAreRefusedAtOnce) {
  const HandMadeJob job{.servers = 2};
  auto cluster = MakeCluster(OptionsFor(job));
  ClientOptions options{.plan = job.Plan(),
                        .trainer_id = 1,
                        .transport = &cluster->transport(0),
                        .clock = Clock::Real(),
                        .pool = cluster->pool()};
  EXPECT_STATUS(Client::Create(options).status(), kInvalidArgument, "trainers 0 to 0");
  options.trainer_id = 0;
  options.plan.set_servers(3);
  EXPECT_STATUS(Client::Create(options).status(), kInvalidArgument, "2 servers are given, the plan has 3");
}

TEST(ClientTest, AnotherProcessWithTheSameIdIsRefusedAndTheFirstGoesOn) {
  const HandMadeJob job;
  auto cluster = MakeCluster(ShortLeases(job));
  ASSERT_TRUE(cluster->client(0).Join().ok());
  auto second = cluster->MakeClient(0, "other:9");
  ASSERT_TRUE(second.ok());
  // After a lease, in which the first one has shown that it lives.
  EXPECT_STATUS((*second)->Join(), kFailedPrecondition, "held by host:2000 and claimed by other:9");
  EXPECT_TRUE(TrainSteps(*cluster, job, 0, 0, 2).ok());
}

TEST(ClientTest, AProcessThatComesInTheLeaseOfADeadOneWaitsForItsEnd) {
  const HandMadeJob job{.trainers = 2, .sync = false};
  auto cluster = MakeCluster(ShortLeases(job));
  auto first = cluster->MakeClient(0, "first:8"), second = cluster->MakeClient(0, "second:9");
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(cluster->RunTrainers([&](int t) { return t == 0 ? (*first)->Join() : cluster->client(t).Join(); }),
            absl::OkStatus());
  // It says nothing from now on.
  first->reset();
  EXPECT_EQ((*second)->Join(), absl::OkStatus());
  EXPECT_TRUE((*second)->member().TakesOver().has_value());
}

TEST(ClientTest, AServerThatNeverAppearsIsNamedAtTheConnectDeadline) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = ShortLeases(job);
  options.deadlines.set_connect_deadline_s(0.5);
  auto cluster = MakeCluster(std::move(options));
  cluster->transport(0).KillServer(1);
  EXPECT_STATUS(cluster->client(0).Join(), kDeadlineExceeded, "server 1");
}

// Without this the others would blame the trainer that has given up.
TEST(ClientTest, ATrainerThatMissesAServerTellsTheOthersWhichOne) {
  for (const bool sync : {true, false}) {
    const HandMadeJob job{.servers = 2, .trainers = 2, .sync = sync};
    ClusterOptions options = ShortLeases(job);
    options.deadlines.set_connect_deadline_s(0.5);
    auto cluster = MakeCluster(std::move(options));
    for (int t = 0; t < 2; ++t) cluster->transport(t).KillServer(1);
    (void)cluster->RunTrainers([&](int t) {
      const absl::Status joined = cluster->client(t).Join();
      EXPECT_STATUS(joined, kDeadlineExceeded, "server 1");
      return joined;
    });
    EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kDeadlineExceeded, "for server 1");
    // A trainer that joins now gets the same error, with the code of the cause.
    auto late = cluster->MakeClient(0, "late:7");
    ASSERT_TRUE(late.ok());
    EXPECT_STATUS((*late)->Join(), kDeadlineExceeded, "for server 1");
  }
}

TEST(ClientTest, AStopEndsTheWaitForAServerThatNeverAppears) {
  ClusterOptions options = ShortLeases({.servers = 2, .trainers = 2});
  options.deadlines.set_connect_deadline_s(600);
  auto cluster = MakeCluster(std::move(options));
  for (int t = 0; t < 2; ++t) cluster->transport(t).KillServer(1);
  const absl::Time begin = Clock::Real()->Now();
  (void)cluster->RunTrainers([&](int t) {
    // Trainer 1 is told by trainer 0, through server 0.
    if (t == 0) cluster->client(t).member().RequestStop();
    const absl::Status joined = cluster->client(t).Join();
    EXPECT_STATUS(joined, kCancelled, "server 1");
    return joined;
  });
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(20));
  EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kCancelled, "was asked to stop");
}

TEST(ClientTest, ATrainerThatOneServerRefusesGivesItsPlaceOnTheOthersBack) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .sync = false};
  auto cluster = MakeCluster(ShortLeases(job));
  // Only server 1 knows of the first process, which goes on living.
  v1::JoinRequest first;
  first.mutable_caller()->set_job_id("job");
  first.mutable_caller()->set_trainer(0);
  first.set_server_index(1);
  first.set_plan_fingerprint(StableHash(job.PlanText()));
  first.set_plan_text(job.PlanText());
  first.set_build(std::string(kBuild));
  first.set_wire_version(kWireVersion);
  first.set_arithmetic("avx2");
  first.set_process("first:7");
  v1::JoinReply joined;
  cluster->servers().Call(1, Method::kJoin, {Slice::Own(first.SerializeAsString())}, absl::Seconds(1),
                          [&](const absl::StatusOr<Slices>& answer) {
                            if (answer.ok()) joined.ParseFromString(Flatten(*answer));
                          });
  ASSERT_NE(joined.session(), 0u);
  std::atomic<bool> lives{true};
  std::thread heart([&] {
    v1::HeartbeatRequest beat;
    *beat.mutable_caller() = first.caller();
    beat.mutable_caller()->set_session(joined.session());
    while (lives) {
      cluster->servers().Call(1, Method::kHeartbeat, {Slice::Own(beat.SerializeAsString())}, absl::Seconds(1),
                              [](const absl::StatusOr<Slices>&) {});
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  for (int times = 0; times < 2; ++times) {
    auto second = cluster->MakeClient(0, absl::StrCat("second:", times));
    ASSERT_TRUE(second.ok());
    // Not "held by second:0", which server 0 let in.
    EXPECT_STATUS((*second)->Join(), kFailedPrecondition, "is held by first:7");
  }
  lives = false;
  heart.join();
  EXPECT_TRUE(cluster->servers().server(0).JobStatus().ok());
}

}  // namespace
}  // namespace weir
