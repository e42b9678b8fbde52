// One server under a fake clock: what strangers hear, what the log says of them, and programs that are none.
#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/handshake.h"
#include "pserver/server/server_core.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ServerCoreTest : public CoreByHand {};

// Whoever reaches the port may join.
TEST_F(ServerCoreTest, AJoinOfAnotherJobOrBuildHearsOnlyWhatItHasSaidAndTheLogSaysMore) {
  edit_ = [](ServerOptions* options) { options->job_name = "secret"; };
  Start({.trainers = 2});
  const auto refused = [&](const std::function<void(v1::JoinRequest&)>& edit, const std::string& logged) {
    v1::JoinRequest request = JoinMessage(0, "trainer:0");
    request.mutable_caller()->set_job_id("secret");
    // Differences that such a caller does not hear of either.
    request.set_plan_text("x: 1\n");
    request.set_plan_fingerprint(1);
    request.set_server_index(1);
    edit(request);
    ::testing::internal::CaptureStderr();
    const absl::Status status = CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString()).status();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(logged));
    EXPECT_STATUS(status, kFailedPrecondition, "this server has another one of them, and its log says which");
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("server:1")));
    return std::string(status.message());
  };
  const std::string job = refused([](auto& r) { r.mutable_caller()->set_job_id("other\n"); },
                                  "refuses trainer 0 (trainer:0): it is of job other\\x0a, this server of job secret");
  EXPECT_THAT(job, HasSubstr("trainer 0 (trainer:0) comes with job other\\x0a, build "));
  EXPECT_THAT(job, Not(HasSubstr("secret")));
  const std::string build = refused([](auto& r) { r.set_build("mine"); },
                                    absl::StrCat("it is of build mine, this server of build ", std::string(kBuild)));
  EXPECT_THAT(build, Not(HasSubstr(std::string(kBuild))));
  refused([](auto& r) { r.set_wire_version(9); }, "it speaks wire version 9, this server 4");
}

TEST_F(ServerCoreTest, TheLogHasAFewLinesOfManyRefusedJoins) {
  Start({.trainers = 2});
  v1::JoinRequest request = JoinMessage(0, "trainer:0");
  request.mutable_caller()->set_job_id("other");
  const auto lines = [&](int joins) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < joins; ++i) (void)CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string many = lines(100);
  EXPECT_EQ(std::count(many.begin(), many.end(), '\n'), 16);
  clock_.Advance(absl::Seconds(11));
  EXPECT_THAT(lines(1), HasSubstr("has refused 84 more joins"));
}

TEST_F(ServerCoreTest, WordsOfCallersReachLogsAndPagesWithoutControlCharacters) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "host\n:1\x1b[2J").ok());
  ASSERT_TRUE(Join(1, "host:2").ok());
  ASSERT_TRUE(
      Beat(1, [](v1::HeartbeatRequest& beat) { beat.set_waiting_for("rows\r\xff" + std::string(900, 'w')); }).ok());
  const ServerReport report = core_->Report();
  EXPECT_EQ(report.trainers[0].name, "trainer 0 (host\\x0a:1\\x1b[2J)");
  EXPECT_THAT(report.trainers[1].waits, StartsWith("rows\\x0d\\xffww"));
  EXPECT_EQ(report.trainers[1].waits.size(), 500u);
  ASSERT_TRUE(Beat(1, [](v1::HeartbeatRequest& beat) {
                beat.mutable_failure()->set_message("no\nmore \x1b]0;disk\x07");
              }).ok());
  EXPECT_EQ(core_->JobStatus().message(), "no\\x0amore \\x1b]0;disk\\x07");
}

// Knowing the names of all processes and how often they have joined does not reveal a session.
TEST_F(ServerCoreTest, SessionsAreDrawnAtRandom) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 4; ++i) {
    Start({});
    JoinAll();
    seen.insert(sessions_[0]);
  }
  EXPECT_EQ(seen.size(), 4u);
}

// A server whose ticks come when NextTick and on_tick_due say so.
class NextTickTest : public CoreByHand {
 protected:
  void SetUp() override {
    edit_ = [this](ServerOptions* options) {
      options->on_tick_due = [this](absl::Time at) { earlier_.push_back(at - clock_.Now()); };
    };
    Start({.trainers = 2});
    JoinAll();
    Rest();
  }
  absl::Duration UntilNextTick() { return core_->NextTick() - clock_.Now(); }
  // Ticks until nobody has asked since the last tick.
  void Rest() {
    for (int i = 0; i < 2; ++i) {
      core_->Tick();
      (void)core_->NextTick();
    }
  }

  std::vector<absl::Duration> earlier_;  // times that on_tick_due was called with, from then on
};

TEST_F(NextTickTest, WhileNothingWaitsTicksAreRareAndOneComesAtTheEndOfALease) {
  EXPECT_EQ(UntilNextTick(), absl::Seconds(1));
  ASSERT_TRUE(Beat(0).ok());
  EXPECT_TRUE(earlier_.empty());
  clock_.Advance(absl::Seconds(9.5));
  EXPECT_EQ(UntilNextTick(), absl::Seconds(0.5));
}

TEST_F(NextTickTest, APullThatWaitsMakesNoTicksBeforeItsDeadline) {
  ASSERT_EQ(UntilNextTick(), absl::Seconds(1));
  const auto pull = Call(Method::kPull, PullBytes(0, 1, 5, "b", 5));
  ASSERT_FALSE(pull->has_value());
  EXPECT_TRUE(earlier_.empty());
  Rest();
  EXPECT_EQ(UntilNextTick(), absl::Seconds(1));
  clock_.Advance(absl::Seconds(4.5));
  EXPECT_EQ(UntilNextTick(), absl::Seconds(0.5));
  const auto sooner = Call(Method::kPull, PullBytes(1, 1, 0.3, "b", 5));
  EXPECT_THAT(earlier_, ElementsAre(absl::Seconds(0.3)));
}

TEST_F(NextTickTest, APullThatWaitsForAnswersToBeReadIsLookedAtTenTimesASecond) {
  unread_bytes_ = 1200;
  SetUp();
  const auto unread = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  const auto waiting = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  ASSERT_FALSE(waiting->has_value());
  EXPECT_THAT(earlier_, ElementsAre(absl::Milliseconds(100)));
  Rest();
  EXPECT_EQ(UntilNextTick(), absl::Milliseconds(100));
  unread->reset();
  Rest();
  EXPECT_TRUE(waiting->has_value());
  EXPECT_EQ(UntilNextTick(), absl::Seconds(1));
}

// A busy server does not look at its waits in each call.
TEST_F(NextTickTest, WhileCallsComeTicksComeTenTimesASecond) {
  ASSERT_TRUE(Pull(0, 0, "b", 5).ok());
  EXPECT_EQ(UntilNextTick(), absl::Milliseconds(100));
  const auto pull = Call(Method::kPull, PullBytes(0, 1, 0.3, "b", 5));
  EXPECT_TRUE(earlier_.empty());
  EXPECT_EQ(UntilNextTick(), absl::Milliseconds(100));
  EXPECT_EQ(UntilNextTick(), absl::Seconds(0.3));
}

// Updates of others, and calls that wait, may go on without it.
TEST_F(NextTickTest, ATrainerThatHasEndedMakesATick) {
  ASSERT_TRUE(Beat(0, [](v1::HeartbeatRequest& beat) { beat.set_done(true); }).ok());
  EXPECT_THAT(earlier_, ElementsAre(absl::Milliseconds(100)));
  core_->Tick();
  EXPECT_EQ(UntilNextTick(), absl::Seconds(1));
}

TEST_F(NextTickTest, AnExchangeThatWaitsIsAnsweredInTime) {
  ASSERT_EQ(UntilNextTick(), absl::Seconds(1));
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerOf(0);
  request.set_key("key");
  request.set_contribution("mine");
  request.set_wait_s(0.3);
  const auto answer = Call(Method::kExchange, request.SerializeAsString());
  EXPECT_THAT(earlier_, ElementsAre(absl::Seconds(0.3)));
  clock_.Advance(absl::Seconds(0.3));
  EXPECT_FALSE(answer->has_value());
  core_->Tick();
  EXPECT_TRUE(answer->has_value());
}

TEST_F(NextTickTest, TheEndOfTheJobAFailureAndAStopAreNoticedSoon) {
  const auto done = [](v1::HeartbeatRequest& beat) { beat.set_done(true); };
  ASSERT_TRUE(Beat(0, done).ok());
  Rest();
  earlier_.clear();
  ASSERT_TRUE(Beat(1, done).ok());
  EXPECT_THAT(earlier_, ElementsAre(absl::Milliseconds(100)));
  for (const bool fails : {false, true}) {
    earlier_.clear();
    SetUp();
    ASSERT_EQ(UntilNextTick(), absl::Seconds(1));
    fails ? core_->ReportFailure(absl::InternalError("a mistake")) : core_->RequestStop();
    EXPECT_THAT(earlier_, ElementsAre(absl::Milliseconds(100))) << fails;
  }
}

TEST(ServerProgramTest, ProgramsThatLackSomethingAreRefusedByName) {
  const HandMadeJob job{.servers = 2};
  FakeClock clock;
  ThreadPool pool("test", 0);
  const auto create = [&](v1::ProgramDesc main, v1::ProgramDesc startup, int id = 0) {
    return ServerCore::Create({.server_id = id,
                               .main = std::move(main),
                               .startup = std::move(startup),
                               .clock = &clock,
                               .pool = &pool})
        .status();
  };
  EXPECT_TRUE(create(job.Main(0), job.Startup(0)).ok());
  EXPECT_STATUS(create(v1::ProgramDesc(), job.Startup(0)), kInvalidArgument, "no plan");
  EXPECT_STATUS(create(job.Main(1), job.Startup(1)), kInvalidArgument, "the program is server 1's");
  v1::ProgramDesc startup = job.Startup(0);
  startup.mutable_blocks(0)->clear_ops();
  EXPECT_STATUS(create(job.Main(0), startup), kInvalidArgument, "block w.block0");
  v1::ProgramDesc main = job.Main(0);
  main.mutable_blocks(0)->clear_ops();
  EXPECT_STATUS(create(main, job.Startup(0)), kInvalidArgument, "listen_and_serv");
}

TEST(ServerProgramTest, ADirectoryThatCannotBeMadeIsAnError) {
  const HandMadeJob job{.servers = 2};
  FakeClock clock;
  ThreadPool pool("test", 0);
  const std::string file = ::testing::TempDir() + "/no_directory";
  std::ofstream(file) << "a file";
  const absl::Status status = ServerCore::Create({.main = job.Main(0),
                                                  .startup = job.Startup(0),
                                                  .checkpoint_dir = file + "/checkpoints",
                                                  .clock = &clock,
                                                  .pool = &pool})
                                  .status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("no_directory"));
}

}  // namespace
}  // namespace weir
