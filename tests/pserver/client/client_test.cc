// Clients and servers together, by threads and the real clock (short deadlines), through a seam that loses, repeats and
// kills at named moments.
#include "pserver/client/client.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/shard.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/protocol/handshake.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A lease of a second; a call is given up after half of that.
ClusterOptions ShortLeases(const HandMadeJob& job) {
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_heartbeat_s(0.1);
  options.deadlines.set_lease_s(1);
  options.deadlines.set_rpc_s(0.4);
  return options;
}

std::unique_ptr<InProcessCluster> MakeCluster(ClusterOptions options) {
  absl::StatusOr<std::unique_ptr<InProcessCluster>> cluster = InProcessCluster::Create(std::move(options));
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

// Joins, receives, and steps from `first` until `steps` or the end that somebody asks for.
absl::Status TrainSteps(InProcessCluster& cluster, const HandMadeJob& job, int trainer, int first, int steps,
                        std::vector<StepOutcome>* outcomes = nullptr) {
  Client& client = cluster.client(trainer);
  HandMadeParams params;
  RETURN_IF_ERROR(ReceiveHandMade(job, &client, &params));
  for (int step = first; step < steps; ++step) {
    ASSIGN_OR_RETURN(const StepOutcome outcome, RunHandMadeStep(job, trainer, {.step = step}, &client, &params));
    if (outcomes != nullptr) outcomes->push_back(outcome);
    if (outcome.stop) break;
  }
  return absl::OkStatus();
}

absl::Status JoinAndTrain(InProcessCluster& cluster, const HandMadeJob& job, int trainer, int steps) {
  RETURN_IF_ERROR(cluster.client(trainer).Join());
  return TrainSteps(cluster, job, trainer, 0, steps);
}

#define EXPECT_STATUS(expression, wanted, text)                     \
  do {                                                              \
    const absl::Status status_ = (expression);                      \
    EXPECT_EQ(status_.code(), absl::StatusCode::wanted) << status_; \
    EXPECT_THAT(std::string(status_.message()), HasSubstr(text));   \
  } while (false)

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
  auto cluster = MakeCluster(OptionsFor(job));
  ASSERT_TRUE(cluster->client(0).Join().ok());
  auto second = cluster->MakeClient(0, "other:9");
  ASSERT_TRUE(second.ok());
  EXPECT_STATUS((*second)->Join(), kFailedPrecondition, "held by host:2000 and claimed by other:9");
  EXPECT_TRUE(TrainSteps(*cluster, job, 0, 0, 2).ok());
}

TEST(ClientTest, AServerThatNeverAppearsIsNamedAtTheConnectDeadline) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = ShortLeases(job);
  options.deadlines.set_connect_deadline_s(0.5);
  auto cluster = MakeCluster(std::move(options));
  cluster->transport(0).KillServer(1);
  EXPECT_STATUS(cluster->client(0).Join(), kDeadlineExceeded, "server 1");
}

// The others would take the trainer that has given up for the culprit.
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
    // One that comes now hears the same, with the code of the cause.
    auto late = cluster->MakeClient(0, "late:7");
    ASSERT_TRUE(late.ok());
    EXPECT_STATUS((*late)->Join(), kDeadlineExceeded, "for server 1");
  }
}

TEST(ClientTest, ATrainerThatOneServerRefusesGivesItsPlaceOnTheOthersBack) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .sync = false};
  auto cluster = MakeCluster(OptionsFor(job));
  // Only server 1 knows of the first.
  v1::JoinRequest first;
  first.mutable_caller()->set_job_id("job");
  first.mutable_caller()->set_trainer(0);
  first.set_server_index(1);
  first.set_plan_fingerprint(StableHash(job.PlanText()));
  first.set_plan_text(job.PlanText());
  first.set_build(std::string(kBuild));
  first.set_arithmetic("avx2");
  first.set_process("first:7");
  absl::Status joined = absl::UnknownError("");
  cluster->servers().Call(1, Method::kJoin, {Slice::Own(first.SerializeAsString())}, absl::Seconds(1),
                          [&](const absl::StatusOr<Slices>& answer) { joined = answer.status(); });
  ASSERT_TRUE(joined.ok()) << joined;
  for (int times = 0; times < 2; ++times) {
    auto second = cluster->MakeClient(0, absl::StrCat("second:", times));
    ASSERT_TRUE(second.ok());
    // Not: "held by second:0", which server 0 let in.
    EXPECT_STATUS((*second)->Join(), kFailedPrecondition, "is held by first:7");
  }
  EXPECT_TRUE(cluster->servers().server(0).JobStatus().ok());
}

// Its lease runs longer on a server that it has talked to since.
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
  (*sleeper)->Heartbeat();
  cluster->Advance(absl::Seconds(9));
  lose = true;
  (*sleeper)->Heartbeat();
  lose = false;
  cluster->Advance(absl::Seconds(2));
  // Twice: the second would carry what the first has met.
  for (int times = 0; times < 2; ++times) (*sleeper)->Heartbeat();
  EXPECT_STATUS((*sleeper)->JobStatus(), kFailedPrecondition, "was declared dead");
  (*sleeper)->ReportFailure((*sleeper)->JobStatus());
  for (int s = 0; s < 2; ++s) EXPECT_TRUE(cluster->servers().server(s).JobStatus().ok()) << s;
}

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
  // One may hear of it from server 0, to which the other has told it.
  for (const absl::Status& status : statuses) {
    EXPECT_STATUS(status, kUnavailable, "server 1");
    EXPECT_THAT(std::string(status.message()), HasSubstr("is dead"));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  // The other server is told too, by a thread of the trainer that found it out.
  const absl::Time told = absl::Now() + absl::Seconds(20);
  while (cluster->servers().server(0).JobStatus().ok() && absl::Now() < told) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kUnavailable, "server 1");
}

// The server lives, and its answers to one call are lost: the deadline says what became of the last try.
TEST(ClientTest, AWaitThatEndsAtItsDeadlineSaysWhatTheLastTryMet) {
  const HandMadeJob job;
  ClusterOptions options = ShortLeases(job);
  options.deadlines.set_progress_deadline_s(1);
  auto cluster = MakeCluster(std::move(options));
  ASSERT_TRUE(cluster->client(0).Join().ok());
  cluster->transport(0).OnCall(
      [](const CallInfo& info) { return info.method == Method::kPull ? Fate::kDropRequest : Fate::kPass; });
  HandMadeParams params;
  EXPECT_STATUS(ReceiveHandMade(job, &cluster->client(0), &params), kDeadlineExceeded,
                "; the last try: no answer in time");
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
  // The step that was cut in two has not taken effect where its part is missing.
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
    if (t == 2) cluster->client(t).ReportFailure(absl::DataLossError("part-7.gz ends in the middle of a line"));
    return status;
  });
  for (int t : {0, 1}) {
    EXPECT_STATUS(statuses[static_cast<size_t>(t)], kDataLoss, "trainer 2 (host:2002): part-7.gz ends in the middle");
  }
}

// A server that has told everyone goes, and a trainer that wrote to it once more would wait for it in vain.
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
      // Then server 0 has said it to another call, and server 1 to none.
      return gone || (is_letter && !by_heartbeat) ? Fate::kDropRequest : Fate::kPass;
    });
    for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
    cluster->client(1).ReportFailure(absl::DataLossError("a torn file"));
    if (by_heartbeat) {
      cluster->client(0).Heartbeat();
      EXPECT_STATUS(cluster->client(0).JobStatus(), kDataLoss, "a torn file");
    } else {
      EXPECT_STATUS(cluster->client(0).Exchange("k", "").status(), kAborted, "a torn file");
    }
    gone = true;
    cluster->client(0).ReportFailure(cluster->client(0).JobStatus());
    EXPECT_EQ(letters[0], 0);
    EXPECT_EQ(letters[1] == 0, by_heartbeat);
  }
}

// Another trainer may have found its death out a moment before this one's lease ran out.
TEST(ClientTest, AServerThatFallsSilentOverTheLastWordIsNotWaitedFor) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = OptionsFor(job);
  options.fake_clock = true;
  auto cluster = MakeCluster(std::move(options));
  bool dead = false, later = false;
  int letters = 0;
  cluster->transport(0).OnCall([&](const CallInfo& info) {
    if (!dead || info.server != 1) return Fate::kPass;
    // Those of the heart-beat are others.
    if (!later) ++letters;
    if (letters > 1 || later) return Fate::kDropRequest;
    later = true;
    cluster->Advance(absl::Seconds(61));  // the lease of OptionsFor
    later = false;
    return Fate::kDropRequest;
  });
  ASSERT_TRUE(cluster->client(0).Join().ok());
  dead = true;
  cluster->client(0).ReportFailure(absl::UnavailableError("server 1 is dead"));
  // One more behind the time that is given to an answer: not all ten.
  EXPECT_LE(letters, 2);
  EXPECT_STATUS(cluster->servers().server(0).JobStatus(), kUnavailable, "server 1 is dead");
}

TEST(ClientTest, AServerThatHasAcknowledgedTheEndMayGo) {
  const HandMadeJob job{.servers = 2};
  ClusterOptions options = OptionsFor(job);
  options.fake_clock = true;
  options.deadlines.set_rpc_s(1);
  auto cluster = MakeCluster(std::move(options));
  std::atomic<bool> at_the_end{false};
  std::atomic<int> asked{0};
  const std::thread::id heartbeats = std::this_thread::get_id();
  // Server 1 is dead, server 0 goes when its only trainer is done.
  cluster->transport(0).OnCall([&](const CallInfo& info) {
    if (at_the_end && info.server == 1 && std::this_thread::get_id() != heartbeats) ++asked;
    const bool gone = info.server == 1 || cluster->servers().server(0).Finished();
    return at_the_end && gone ? Fate::kDropRequest : Fate::kPass;
  });
  ASSERT_TRUE(cluster->client(0).Join().ok());
  at_the_end = true;
  absl::Status done;
  std::thread trainer([&] { done = cluster->client(0).Done(); });
  while (!cluster->servers().server(0).Finished()) std::this_thread::yield();
  // Server 1 is asked again when the answer of server 0 has been read.
  while (asked < 2) {
    cluster->Advance(absl::Milliseconds(20));
    absl::SleepFor(absl::Milliseconds(1));
  }
  cluster->Advance(absl::Seconds(61));  // the lease of OptionsFor
  trainer.join();
  EXPECT_STATUS(done, kUnavailable, "server 1");
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

TEST(ClientTest, AnEndThatOneAsksForComesToAllAtOneStepBorder) {
  const HandMadeJob job{.servers = 2, .trainers = 3};
  auto cluster = MakeCluster(OptionsFor(job));
  std::vector<std::vector<StepOutcome>> outcomes(3);
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(cluster->client(t).Join());
    if (t == 1) cluster->client(t).RequestStop();
    RETURN_IF_ERROR(TrainSteps(*cluster, job, t, 0, 1000, &outcomes[static_cast<size_t>(t)]));
    return cluster->client(t).Done();
  });
  ASSERT_TRUE(status.ok()) << status;
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

TEST(ClientTest, ExchangesOfAnySizeGiveEveryoneEverything) {
  const HandMadeJob job{.trainers = 3};
  auto cluster = MakeCluster(OptionsFor(job));
  const std::string large(size_t{70} << 20, 'x');
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    RETURN_IF_ERROR(client.Join());
    ASSIGN_OR_RETURN(const std::vector<std::string> small, client.Exchange("a", absl::StrCat("of ", t)));
    EXPECT_THAT(small, ElementsAre("of 0", "of 1", "of 2"));
    ASSIGN_OR_RETURN(const std::vector<std::string> sizes, client.Exchange("b", t == 1 ? large : ""));
    EXPECT_EQ(sizes[0], "");
    EXPECT_TRUE(sizes[1] == large);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, PostsOfAnySizeAreReadAsTheyAre) {
  const HandMadeJob job{.trainers = 3, .sync = false};
  auto cluster = MakeCluster(OptionsFor(job));
  for (int t = 0; t < 3; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  // Three chunks, told apart.
  std::string large(size_t{70} << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 1 << 20) large[i] = static_cast<char>(i >> 20);
  ASSERT_TRUE(cluster->client(1).Post("k", "small", 0).ok());
  ASSERT_TRUE(cluster->client(2).Post("k", "of 2", 5).ok());
  const auto posted = [&](int t) { return *cluster->client(0).Posted("k", t); };
  EXPECT_THAT((std::vector<std::string>{posted(0), posted(1), posted(2)}), ElementsAre("", "small", "of 2"));
  ASSERT_TRUE(cluster->client(1).Post("k", large, 20).ok());
  EXPECT_TRUE(posted(1) == large);
  EXPECT_EQ(posted(2), "of 2");
}

TEST(ClientTest, AStreamOfAnySizeArrivesWhole) {
  const HandMadeJob job{.trainers = 2};
  auto cluster = MakeCluster(OptionsFor(job));
  // More than chunks that may wait; and one that ends with a chunk, and an empty one.
  std::string large(5 * kStreamChunk, 'x');
  for (size_t i = 0; i < large.size(); i += 1 << 16) large[i] = static_cast<char>(i >> 16);
  const std::vector<std::string> all = {large + "rest", large, "", "small"};
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    RETURN_IF_ERROR(client.Join());
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string key = absl::StrCat("stream ", i);
      if (t == 0) {
        const auto stream = client.StreamTo(key, 1);
        for (size_t at = 0; at < all[i].size(); at += 999'999) {
          RETURN_IF_ERROR(stream->Append(std::string_view(all[i]).substr(at, 999'999)));
        }
        RETURN_IF_ERROR(stream->Finish());
        continue;
      }
      std::string read;
      RETURN_IF_ERROR(client.ReadStream(key, 0, [&](std::string_view bytes) {
        read += bytes;
        return absl::OkStatus();
      }));
      EXPECT_TRUE(read == all[i]) << i << ": " << read.size();
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, AStreamSurvivesLostRequestsAndReplies) {
  const HandMadeJob job{.trainers = 2};
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_rpc_s(0.2);
  auto cluster = MakeCluster(std::move(options));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  for (int t = 0; t < 2; ++t) {
    auto calls = std::make_shared<std::atomic<int>>(0);
    cluster->transport(t).OnCall([calls](const CallInfo& info) {
      if (info.tries > 0) return Fate::kPass;
      return ++*calls % 3 == 0 ? Fate::kDropReply : Fate::kPass;
    });
  }
  std::string large(4 * kStreamChunk, 'x'), read;
  for (size_t i = 0; i < large.size(); i += 1 << 16) large[i] = static_cast<char>(i >> 16);
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    if (t == 0) {
      const auto stream = cluster->client(0).StreamTo("k", 1);
      RETURN_IF_ERROR(stream->Append(large));
      return stream->Finish();
    }
    return cluster->client(1).ReadStream("k", 0, [&](std::string_view bytes) {
      read += bytes;
      return absl::OkStatus();
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(read == large);
}

TEST(ClientTest, ResidualsGoBackToWhoHasTheirLanesNow) {
  // Three trainers of lanes {0,2} {2,1}, {3,1} {4,2} and {6,2}; then two of four lanes, and three again.
  const auto job_of = [](int trainers) {
    return HandMadeJob{.servers = 2, .trainers = trainers, .push = v1::WIRE_INT8};
  };
  const auto gather = [](InProcessCluster& cluster, int64_t step) {
    std::string all;
    const absl::Status gathered = cluster.RunTrainers([&](int t) {
      return cluster.client(t).GatherResiduals(step, /*to=*/0, [&](std::string_view bytes) {
        all += bytes;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(gathered.ok()) << gathered;
    return all;
  };
  auto first = MakeCluster(OptionsFor(job_of(3)));
  ASSERT_TRUE(first->RunTrainers([&](int t) { return JoinAndTrain(*first, job_of(3), t, 3); }).ok());
  const std::string saved = gather(*first, 3);
  ASSERT_GT(saved.size(), 1000u);
  for (const int trainers : {3, 2}) {
    auto again = MakeCluster(OptionsFor(job_of(trainers)));
    const absl::Status dealt = again->RunTrainers([&](int t) -> absl::Status {
      RETURN_IF_ERROR(again->client(t).Join());
      return again->client(t).DealResiduals(/*from=*/0, [&](const Client::Take& take) { return take(saved); },
                                            /*step=*/3);
    });
    ASSERT_TRUE(dealt.ok()) << dealt;
    const std::string back = gather(*again, 3);
    if (trainers == 3) {
      EXPECT_TRUE(back == saved);
      continue;
    }
    // Lanes 0 to 3 and 4 to 7 are nodes of their own, which nobody had.
    EXPECT_EQ(back, "");
  }
  // What is no such file is damaged data, at the one who reads it; the others end with the job.
  auto damaged = MakeCluster(OptionsFor(job_of(1)));
  ASSERT_TRUE(damaged->client(0).Join().ok());
  EXPECT_STATUS(damaged->client(0).DealResiduals(
                    0, [&](const Client::Take& take) { return take(saved.substr(0, saved.size() - 1)); }, 3),
                kDataLoss, "the checkpoint's residuals: they end within an element");
}

TEST(ClientTest, AContributionIsCollectedWhenAllAreThere) {
  const HandMadeJob job{.trainers = 2, .sync = false};
  auto cluster = MakeCluster(OptionsFor(job));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  std::vector<std::string> all;
  ASSERT_TRUE(cluster->client(0).Contribute("eval.1", "zero").ok());
  EXPECT_FALSE(*cluster->client(0).TryCollect("eval.1", &all));
  ASSERT_TRUE(cluster->client(1).Contribute("eval.1", "one").ok());
  EXPECT_TRUE(*cluster->client(0).TryCollect("eval.1", &all));
  EXPECT_THAT(all, ElementsAre("zero", "one"));
}

TEST(ClientTest, ReadOnlyStepsReadTheNewestRowsAndLeaveNoTrace) {
  const HandMadeJob job{.servers = 2};
  auto cluster = MakeCluster(OptionsFor(job));
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 2).ok());
  const auto before = cluster->GetDigest();
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.BeginStep(2, /*read_only=*/true).ok());
  const std::vector<int64_t> ids = {123456789, INT64_MIN, 77};
  std::vector<float> rows(12, -9);
  const ParamChannel::TableRows pull{"t", 4, &ids, rows.data()};
  ASSERT_TRUE(client.PullRows({&pull, 1}).ok());
  for (float v : rows) EXPECT_NE(v, -9);
  Tensor gradient(v1::FLOAT32, {5});
  const ParamChannel::LaneTensor lane{0, &gradient};
  EXPECT_STATUS(client.SendDense({"b", 1, 5}, {&lane, 1}), kFailedPrecondition, "read-only");
  EXPECT_STATUS(client.FinishSends(1, v1::APPLY), kFailedPrecondition, "read-only");
  EXPECT_EQ(*cluster->GetDigest(), *before);
}

// Flips a bit of the last byte of the first `spoils` answers to pulls that have a payload.
class SpoilingTransport : public Transport {
 public:
  SpoilingTransport(Transport* inner, int spoils) : inner_(*inner), spoils_(spoils) {}
  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    if (method != Method::kPull) return inner_.Call(server, method, std::move(request), timeout, std::move(done));
    inner_.Call(server, method, std::move(request), timeout, [this, done](absl::StatusOr<Slices> answer) {
      if (answer.ok() && answer->size() > 1 && spoils_.fetch_sub(1) > 0) {
        std::string bytes = Flatten(*answer);
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        answer = Slices{Slice::Own(std::move(bytes))};
      }
      done(std::move(answer));
    });
  }
  std::string Describe(int server) const override { return inner_.Describe(server); }
  int servers() const override { return inner_.servers(); }

 private:
  Transport& inner_;
  std::atomic<int> spoils_;  // counted down by any thread
};

TEST(ClientTest, APullThatIsSpoiledOnTheWayIsAskedForOnceMore) {
  const HandMadeJob job;
  auto cluster = MakeCluster(OptionsFor(job));
  HandMadeParams wanted;
  {
    ASSERT_TRUE(cluster->client(0).Join().ok());
    ASSERT_TRUE(ReceiveHandMade(job, &cluster->client(0), &wanted).ok());
  }
  for (const int spoils : {1, 1000}) {
    auto another = MakeCluster(OptionsFor(job));
    SpoilingTransport spoiling(&another->transport(0), spoils);
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
    const absl::Status status = ReceiveHandMade(job, client->get(), &params);
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
  ASSERT_TRUE(client.BeginStep(0, false).ok());
  Tensor wrong(v1::FLOAT32, {4});
  const ParamChannel::LaneTensor lane{0, &wrong};
  EXPECT_STATUS(client.SendDense({"nothing", 0, 4}, {&lane, 1}), kInvalidArgument, "no block nothing");
  EXPECT_STATUS(client.SendDense({"b", 0, 5}, {&lane, 1}), kInvalidArgument, "has 4 elements, the block has 5");
  SelectedRows rows{.ids = {1, 7}};
  rows.values.Resize(v1::FLOAT32, {1, 4});
  const ParamChannel::LaneRows of_lane{0, &rows};
  EXPECT_STATUS(client.SendRows({"t", -1, 0}, 4, {&of_lane, 1}), kInvalidArgument,
                "2 rows come with 4 values; 8 are wanted");
  EXPECT_STATUS(client.Receive({"b", 0, 5}, &wrong), kInvalidArgument, "has 5 floats");
  const std::vector<int64_t> ids = {1};
  const ParamChannel::TableRows pull{"nothing", 4, &ids, nullptr};
  EXPECT_STATUS(client.PullRows({&pull, 1}), kInvalidArgument, "table nothing");
}

TEST(ClientTest, AsyncTrainersGoTheirOwnWayAndEnd) {
  for (bool eager : {false, true}) {
    const HandMadeJob job{.servers = 2, .trainers = 3, .sync = false, .eager = eager};
    ClusterOptions options = OptionsFor(job);
    options.deadlines.set_rpc_s(0.3);
    options.faults = {.drop_request = 0.02, .drop_reply = 0.02, .duplicate = 0.05, .delay = 0.05};
    auto cluster = MakeCluster(std::move(options));
    const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
      // Another number of steps each: nobody waits for anybody.
      RETURN_IF_ERROR(JoinAndTrain(*cluster, job, t, 5 + 3 * t));
      return cluster->client(t).Done();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(cluster->servers().server(s).Finished());
      EXPECT_EQ(cluster->servers().server(s).Version(), 5 + 8 + 11);
    }
  }
}

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

  // As the chief does it at a step border.
  absl::StatusOr<std::string> Save(InProcessCluster& cluster, int64_t step) {
    ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir_, step));
    v1::ControlRequest request;
    request.mutable_save()->set_name(temporary);
    request.mutable_save()->set_step(step);
    ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, cluster.client(0).Control(request));
    v1::CheckpointManifest manifest;
    manifest.set_job("job");
    manifest.set_step(step);
    for (const v1::ControlReply& reply : replies) {
      if (!manifest.add_shards()->ParseFromString(reply.shard())) return absl::DataLossError("no CheckpointShard");
    }
    return PublishCheckpoint(dir_, temporary, manifest);
  }
  // A checkpoint of step 6 of two servers of async, of which server 0 had applied 3 steps and server 1 had applied 5.
  void SaveApart(const HandMadeJob& job);
  // Steps that each server applies in training from step 3 to step 8 behind a load of that.
  std::vector<int64_t> AppliedAfter(const HandMadeJob& job);
  absl::Status Load(InProcessCluster& cluster, int64_t step) {
    v1::ControlRequest request;
    request.mutable_load()->set_name(StepDirectoryName(step));
    return cluster.client(0).Control(request).status();
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
      second->client(t).SetFirstStep(5);
      RETURN_IF_ERROR(second->client(t).Exchange("loaded", "").status());
      if (t == 0) {
        ASSIGN_OR_RETURN(const InProcessCluster::Digest loaded, second->GetDigest());
        EXPECT_EQ(loaded, at_five);
      }
      RETURN_IF_ERROR(second->client(t).Exchange("checked", "").status());
      return TrainSteps(*second, other, t, 5, 8);
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*second->GetDigest(), *wanted) << other.servers << " servers, " << other.trainers << " trainers";
  }
}

void CheckpointTest::SaveApart(const HandMadeJob& job) {
  v1::CheckpointManifest manifests[2];
  {
    // Server 0 saves after 3 steps, server 1 after 5: two whole checkpoints, of which one shard each is taken.
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
  second->client(0).SetFirstStep(3);
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

// b was on server 0 and has not seen steps 3 and 4.
TEST_F(CheckpointTest, NoStepIsMissingOfABlockThatComesFromASlowerServer) {
  SaveApart({.servers = 2, .sync = false, .bias_server = 0});
  EXPECT_THAT(AppliedAfter({.servers = 2, .sync = false, .bias_server = 1}), ElementsAre(5, 5));
}

// What server 1 gives up does not make it repeat what it has.
TEST_F(CheckpointTest, ABlockThatHasGoneElsewhereChangesNothing) {
  SaveApart({.servers = 2, .sync = false, .bias_server = 1});
  EXPECT_THAT(AppliedAfter({.servers = 2, .sync = false, .bias_server = 0}), ElementsAre(5, 3));
}

// Servers 2 and 3 hold halves of what server 1 had.
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
  // The planted fault: the checkpoint says nothing of Adam's second moment.
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
  EXPECT_STATUS(cluster->client(0).Control(request).status(), kInvalidArgument,
                "is no name of a checkpoint that is being written");
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
}

TEST_F(CheckpointTest, TroubleOfTheDiskIsToldAtOnce) {
  const HandMadeJob job;
  auto cluster = MakeCluster(WithDirectory(job));
  ASSERT_TRUE(JoinAndTrain(*cluster, job, 0, 1).ok());
  // A file stands where the server wants a directory.
  const std::string in_the_way = dir_ + "/tmp-step-000000000001-x";
  std::ofstream(in_the_way) << "here";
  v1::ControlRequest request;
  request.mutable_save()->set_name("tmp-step-000000000001-x");
  const absl::Time start = absl::Now();
  EXPECT_STATUS(cluster->client(0).Control(request).status(), kFailedPrecondition, "tmp-step-000000000001-x");
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
