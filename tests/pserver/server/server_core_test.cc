// One server under a fake clock: joins, dead and slow trainers, exchanges and control.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_message.h"
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

// ------------------------------------------------------------------------------------------------------------- joining

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
  refused([](auto& r) { r.set_wire_version(9); }, "it speaks wire version 9, this server 2");
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

TEST_F(ServerCoreTest, JoinsThatDoNotFitAreRefusedWithBothSidesNamed) {
  Start({.trainers = 2});
  const auto refused = [&](const std::function<void(v1::JoinRequest&)>& edit) {
    v1::JoinRequest request = JoinMessage(0, "trainer:0");
    edit(request);
    return CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString()).status();
  };
  EXPECT_STATUS(refused([](auto& r) { r.set_server_index(1); }), kFailedPrecondition, "this is server 0");
  EXPECT_STATUS(refused([](auto& r) { r.set_server_index(1); }), kFailedPrecondition, "expects server 1");
  EXPECT_STATUS(refused([](auto& r) { r.set_arithmetic("avx512"); }), kFailedPrecondition, "avx512");
  EXPECT_STATUS(refused([](auto& r) { r.mutable_caller()->set_trainer(2); }), kInvalidArgument, "trainers 0 to 1");
  EXPECT_STATUS(refused([](auto& r) {
                  const std::string other = HandMadeJob{.trainers = 3}.PlanText();
                  r.set_plan_text(other);
                  r.set_plan_fingerprint(StableHash(other));
                }),
                kFailedPrecondition, "distribute.trainers: 2 here, 3 there");
  EXPECT_TRUE(Join(0, "trainer:0").ok());
}

TEST_F(ServerCoreTest, ASecondClaimantIsRefusedWithBothProcesses) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "first:7").ok());
  const uint64_t session = sessions_[0];
  EXPECT_STATUS(Join(0, "second:8"), kUnavailable, "held by first:7 and claimed by second:8");
  Pass(11, {0});
  EXPECT_STATUS(Join(0, "second:8"), kFailedPrecondition, "held by first:7 and claimed by second:8");
  // A repeat of the first join, whose answer was lost, is not a second claimant.
  ASSERT_TRUE(Join(0, "first:7").ok());
  EXPECT_EQ(sessions_[0], session);
}

TEST_F(ServerCoreTest, AfterTheLeaseAnotherIsWelcomeAndTheFirstIsRefused) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const uint64_t old_session = sessions_[0];
  Pass(11, {1});
  ASSERT_TRUE(Join(0, "second:8").ok());
  EXPECT_NE(sessions_[0], old_session);
  EXPECT_TRUE(Beat(0).ok());
  sessions_[0] = old_session;
  EXPECT_STATUS(Beat(0).status(), kFailedPrecondition, "second:8");
}

TEST_F(ServerCoreTest, ANamesakeIsAnotherClaimant) {
  Start({.trainers = 1, .sync = false});
  v1::JoinRequest first = JoinMessage(0, "node7:1"), second = first;
  first.set_incarnation(11);
  second.set_incarnation(12);
  const auto join = [&](const v1::JoinRequest& request) {
    return CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString());
  };
  const auto joined = join(first);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_STATUS(join(second).status(), kUnavailable, "is held by node7:1");
  const auto again = join(first);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->session(), joined->session());
}

TEST_F(ServerCoreTest, WhoTakesADeadTrainersPlaceHearsItsNextStep) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(PushStep(0, step, {}, 1).ok());
  Pass(11, {1});
  const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(0, "second:8").SerializeAsString());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->has_next_step());
  EXPECT_EQ(reply->next_step(), 3);
  sessions_[0] = reply->session();
  // Steps that the dead trainer has pushed are not applied again.
  const int64_t version = core_->Version();
  ASSERT_TRUE(PushStep(0, 2, {}, 1).ok());
  EXPECT_EQ(core_->Version(), version);
  ASSERT_TRUE(PushStep(0, 3, {}, 1).ok());
  EXPECT_EQ(core_->Version(), version + 1);
}

TEST_F(ServerCoreTest, WhoIsRefusedElsewhereGivesItsPlaceBack) {
  Start({.trainers = 2, .sync = false});
  ASSERT_TRUE(Join(1, "trainer:1").ok());
  ASSERT_TRUE(Join(0, "first:7").ok());
  const auto leave = [](v1::HeartbeatRequest& r) { r.set_leave(true); };
  ASSERT_TRUE(Beat(0, leave).ok());
  EXPECT_STATUS(Beat(0).status(), kAborted, "has not joined");
  ASSERT_TRUE(Join(0, "second:8").ok());
  // A trainer may also take the place of a dead one, with its steps, and leave it; the same process may join again.
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(PushStep(0, step, {}, 1).ok());
  Pass(11, {1});
  for (int times = 0; times < 2; ++times) {
    const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(0, "third:9").SerializeAsString());
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->has_next_step());
    EXPECT_EQ(reply->next_step(), 3);
    sessions_[0] = reply->session();
    if (times == 0) {
      ASSERT_TRUE(Beat(0, leave).ok());
      EXPECT_THAT(Beat(1)->dead(), ElementsAre(0));
    }
  }
  // A trainer that has begun to push cannot leave.
  ASSERT_TRUE(Push({.trainer = 0, .step = 3, .part = 0, .items = {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}}).ok());
  EXPECT_STATUS(Beat(0, leave).status(), kFailedPrecondition, "has begun its work");
}

TEST_F(ServerCoreTest, WhoJoinsAJobThatHasFailedHearsTheCauseWithItsOwnCode) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "trainer:0").ok());
  ASSERT_TRUE(Beat(0, [](auto& r) {
                *r.mutable_failure() =
                    StatusMessage(absl::InvalidArgumentError("trainer 0 (trainer:0): train.txt:7: bad line"));
              }).ok());
  EXPECT_FALSE(core_->Finished());
  const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(1, "trainer:1").SerializeAsString());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(StatusOf(reply->failure()), absl::InvalidArgumentError("trainer 0 (trainer:0): train.txt:7: bad line"));
  EXPECT_FALSE(reply->has_session());
  // All trainers have been told.
  EXPECT_TRUE(core_->Finished());
}

TEST_F(ServerCoreTest, CallsWithoutJoiningAreRefused) {
  Start({});
  EXPECT_STATUS(Beat(0).status(), kFailedPrecondition, "has not joined");
  EXPECT_STATUS(PushStep(0, 0, {}, 1), kFailedPrecondition, "has not joined");
  EXPECT_STATUS(Pull(0, 0, "b", 5).status(), kFailedPrecondition, "has not joined");
}

TEST_F(ServerCoreTest, TrainersThatNeverComeAreNamed) {
  Start({.trainers = 3});
  ASSERT_TRUE(Join(1, "trainer:1").ok());
  Pass(299, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(3, {1});
  EXPECT_STATUS(core_->JobStatus(), kDeadlineExceeded, "trainers 0, 2 have not joined");
}

TEST_F(ServerCoreTest, ADeadTrainerFreesItsPlaceWhileOthersAreStillMissing) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "first:7").ok());
  Pass(11, {});
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_TRUE(Join(0, "second:8").ok());
}

// ------------------------------------------------------------------------------------------------------- dead and slow

TEST_F(ServerCoreTest, ADeadTrainerInSyncEndsTheJobForAllAndIsNamed) {
  Start({.trainers = 2});
  JoinAll();
  const auto waiting = Call(Method::kPull, PullBytes(1, 1, 30, "b", 5));
  Pass(9, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_FALSE(waiting->has_value());
  Pass(2, {1});
  EXPECT_STATUS(core_->JobStatus(), kUnavailable, "trainer 0 (trainer:0) is dead");
  // Waiting calls fail at once, the others learn it from the next heart-beat; a trainer that wakes up is refused with
  // the reason.
  ASSERT_TRUE(waiting->has_value());
  EXPECT_STATUS((*waiting)->status(), kAborted, "trainer 0 (trainer:0) is dead");
  const auto beat = Beat(1);
  ASSERT_TRUE(beat.ok());
  EXPECT_STATUS(StatusOf(beat->failure()), kUnavailable, "trainer 0 (trainer:0) is dead");
  EXPECT_FALSE(PushStep(0, 0, {}, 1).ok());
  EXPECT_TRUE(core_->Finished());
}

TEST_F(ServerCoreTest, AServerWaitsTwoLeasesForThoseWhoComeLateToAJobThatHasFailed) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "trainer:0").ok());
  ASSERT_TRUE(Beat(0, [](auto& r) { r.mutable_failure()->set_message("trainer 0 (trainer:0): disk on fire"); }).ok());
  Pass(19.5, {});
  EXPECT_FALSE(core_->Finished());
  Pass(1, {});
  EXPECT_TRUE(core_->Finished());
}

// Another server has found a death a moment earlier, and a trainer has passed it on.
TEST_F(ServerCoreTest, AServerDoesNotWaitForTheDeadOfAJobThatHasFailed) {
  Start({.trainers = 3});
  JoinAll();
  Pass(9, {1, 2});
  ASSERT_TRUE(Beat(1, [](auto& r) { r.mutable_failure()->set_message("trainer 0 (trainer:0) is dead"); }).ok());
  EXPECT_THAT(Beat(2)->failure().message(), HasSubstr("trainer 0 (trainer:0) is dead"));
  EXPECT_FALSE(core_->Finished()) << "its lease runs a second more";
  Pass(1.5, {});
  EXPECT_TRUE(core_->Finished());
}

// A process that was stopped or suspended finds unread heart-beats when it wakes up.
TEST_F(ServerCoreTest, AServerThatHasOversleptGivesEveryoneHalfALease) {
  Start({.trainers = 2});
  JoinAll();
  Pass(1, {0, 1});
  clock_.Advance(absl::Seconds(60));
  core_->Tick();
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(4.5, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(1, {1});
  EXPECT_STATUS(core_->JobStatus(), kUnavailable, "trainer 0 (trainer:0) is dead");
}

// ----------------------------------------------------------------------------------------------------------- the chief

TEST_F(ServerCoreTest, TheLowestLivingTrainerHasTheDutiesOfTheChiefAndKeepsThem) {
  Start({.trainers = 3, .sync = false});
  const auto first = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(2, "trainer:2").SerializeAsString());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->chief(), 0);  // trainer 0, which has not joined yet
  JoinAll();
  EXPECT_EQ(Beat(2)->chief(), 0);
  Pass(11, {1, 2});
  EXPECT_EQ(Beat(2)->chief(), 1);
  // A new trainer 0 does not take the duties back, since the present chief may be in the middle of them.
  ASSERT_TRUE(Join(0, "second:8").ok());
  EXPECT_EQ(Beat(0)->chief(), 1);
  ASSERT_TRUE(Beat(1, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_EQ(Beat(2)->chief(), 0);
  Pass(11, {2});
  EXPECT_EQ(Beat(2)->chief(), 2);
}

TEST_F(ServerCoreTest, OnlyServer0SaysWhoIsTheChiefAndInSyncItIsTrainer0) {
  Start({.servers = 2, .trainers = 2, .sync = false}, /*server=*/1);
  JoinAll();
  EXPECT_FALSE(Beat(0)->has_chief());
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_EQ(Beat(1)->chief(), 0);
}

TEST_F(ServerCoreTest, WhoWaitsForTheChiefsWordHearsItOrThatItIsTheChiefNow) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  const auto await = [&](int trainer, int64_t edition) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("k");
    request.set_anyone(true);
    request.set_edition(edition);
    request.set_wait_s(50);
    return Call(Method::kExchange, request.SerializeAsString());
  };
  const auto post = [&](int trainer, int64_t edition) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("k");
    request.set_edition(edition);
    request.set_contribution("x");
    EXPECT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).ok());
  };
  const auto reply_of = [&](const std::shared_ptr<Answer>& answer) {
    v1::ExchangeReply reply;
    EXPECT_TRUE(answer->has_value() && (*answer)->ok() && reply.ParseFromString(Flatten(***answer)));
    return reply;
  };
  // The chief does not wait for anyone.
  const v1::ExchangeReply at_once = reply_of(await(0, 0));
  EXPECT_TRUE(at_once.ready());
  EXPECT_EQ(at_once.chief(), 0);
  EXPECT_FALSE(at_once.has_by());
  const auto hears = await(2, 0);
  EXPECT_FALSE(hears->has_value());
  post(0, 3);
  EXPECT_EQ(reply_of(hears).by(), 0);
  EXPECT_EQ(reply_of(hears).edition(), 3);
  // A newer edition never comes, since the chief dies.
  const auto becomes_chief = await(1, 4), waits_on = await(2, 4);
  Pass(11, {1, 2});
  EXPECT_EQ(reply_of(becomes_chief).chief(), 1);
  EXPECT_EQ(reply_of(becomes_chief).edition(), 3);
  EXPECT_FALSE(waits_on->has_value());
  post(1, 4);
  EXPECT_EQ(reply_of(waits_on).by(), 1);
}

TEST_F(ServerCoreTest, WhatOnlyADeadChiefWasToReadIsKeptForTheNext) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  const auto exchange = [&](int trainer, bool give, int read) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("eval.20");
    request.set_read_trainer(read);
    request.set_reader(0);
    if (give) request.set_contribution("x");
    return CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString());
  };
  for (int t = 0; t < 3; ++t) ASSERT_TRUE(exchange(t, true, -1).ok());
  Pass(200, {1, 2});
  const auto read = exchange(1, false, 2);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->ready());
  EXPECT_EQ(read->contribution(), "x");
  Pass(200, {1, 2});
  EXPECT_FALSE(exchange(1, false, 2)->ready());
}

TEST_F(ServerCoreTest, AServerWithStepsThatNobodyCanSaveAnyMoreFails) {
  const std::string dir = ::testing::TempDir() + "/unsaved";
  std::filesystem::remove_all(dir);
  edit_ = [&](ServerOptions* options) { options->checkpoint_dir = dir; };
  const auto save = [&] {
    v1::ControlRequest request;
    *request.mutable_caller() = CallerOf(1);
    request.mutable_save()->set_name("tmp-step-000000000001-0123456789abcdef");
    EXPECT_TRUE(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).ok());
  };
  const auto done = [&](int trainer) { (void)Beat(trainer, [](auto& r) { r.set_done(true); }); };
  // Trainer 0 takes the place of a dead one after trainer 1 has written the last checkpoint, and then dies too.
  for (const bool late : {false, true}) {
    Start({.trainers = 2, .sync = false});
    JoinAll();
    ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
    ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
    Pass(11, {1});
    save();
    ASSERT_TRUE(Join(0, "second:8").ok());
    if (late) {
      ASSERT_TRUE(PushStep(0, 1, {}, 1).ok());
    }
    done(1);
    EXPECT_FALSE(core_->Finished());
    Pass(11, {});
    EXPECT_TRUE(core_->Finished());
    if (late) {
      EXPECT_STATUS(core_->JobStatus(), kUnavailable,
                    "no trainer is left to save; 1 step that has taken effect since the last save");
      EXPECT_THAT(std::string(core_->JobStatus().message()), HasSubstr("trainer 0 (second:8) is dead"));
    } else {
      EXPECT_TRUE(core_->JobStatus().ok()) << core_->JobStatus();
    }
  }
  core_.reset();
  std::filesystem::remove_all(dir);
}

TEST_F(ServerCoreTest, NothingIsLoadedOnceATrainerHasPushed) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  // A load, or a file of rows, would undo what others have done since.
  v1::ControlRequest request;
  *request.mutable_caller() = CallerOf(0);
  request.mutable_load_rows();
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kFailedPrecondition,
                "has already pushed");
}

TEST_F(ServerCoreTest, InAsyncADeadTrainersUnfinishedStepIsDroppedAndTheOthersGoOn) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const std::vector<float> before = Bias(1);
  ASSERT_TRUE(Push({.trainer = 0, .step = 0, .part = 0, .items = {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}}).ok());
  Pass(11, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  const auto beat = Beat(1);
  ASSERT_TRUE(beat.ok());
  EXPECT_THAT(beat->dead(), ElementsAre(0));
  EXPECT_EQ(Bias(1), before);
  // The last part of the step, arriving only now, is refused.
  EXPECT_STATUS(Push({.trainer = 0, .step = 0, .part = 1, .part_count = 2, .samples = 1}).status(), kFailedPrecondition,
                "declared dead");
  EXPECT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1).ok());
  EXPECT_NE(Bias(1), before);
  ASSERT_TRUE(Beat(1, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_TRUE(core_->Finished());
  EXPECT_TRUE(core_->JobStatus().ok());
}

TEST_F(ServerCoreTest, ASlowTrainerIsNamedAndEndsTheJobAfterTheProgressDeadline) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  Pass(9, {0, 1});
  EXPECT_EQ(Beat(1)->slow_size(), 0);
  Pass(3, {0, 1});
  ASSERT_EQ(Beat(1)->slow_size(), 1);
  EXPECT_THAT(Beat(1)->slow(0), HasSubstr("trainer 0 (trainer:0) at step 0"));
  Pass(1700, {0, 1});
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(120, {0, 1});
  EXPECT_STATUS(core_->JobStatus(), kDeadlineExceeded, "trainer 0 (trainer:0) is slow");
}

// A trainer that pulls ahead of its step has a held pull, whatever else it does.
TEST_F(ServerCoreTest, AHeldPullExcusesTheStepThatItBeginsAndNoOtherOne) {
  const auto slow = [this](int64_t steps_done) {
    Start({.trainers = 2, .sync = false, .staleness = 1});
    JoinAll();
    for (int64_t step = 0; step < steps_done; ++step) EXPECT_TRUE(PushStep(0, step, {}, 1).ok());
    // Trainer 1 has done nothing, so step 2 may not begin.
    const auto held = Call(Method::kPull, PullBytes(0, 2, 60, "b", 5));
    Pass(12, {0, 1});
    EXPECT_FALSE(held->has_value());
    const auto beat = Beat(1);
    return std::vector<std::string>(beat->slow().begin(), beat->slow().end());
  };
  EXPECT_THAT(slow(2), ElementsAre(HasSubstr("trainer 1 (trainer:1)")));
  // The held pull is for step 2, but trainer 0 is still at step 1.
  EXPECT_THAT(slow(1), ElementsAre(HasSubstr("trainer 0 (trainer:0)"), HasSubstr("trainer 1 (trainer:1)")));
}

TEST_F(ServerCoreTest, AFailureThatOneProcessReportsReachesAll) {
  Start({.trainers = 3});
  JoinAll();
  const v1::Status failure = StatusMessage(absl::DataLossError("trainer 2 (trainer:2): disk on fire"));
  ASSERT_TRUE(Beat(2, [&](auto& r) { *r.mutable_failure() = failure; }).ok());
  EXPECT_STATUS(core_->JobStatus(), kDataLoss, "disk on fire");
  EXPECT_THAT(Beat(0)->failure().message(), HasSubstr("disk on fire"));
  EXPECT_STATUS(PushStep(1, 0, {}, 1), kAborted, "disk on fire");
  EXPECT_TRUE(core_->Finished());
}

// ------------------------------------------------------------------------------------------------ exchange and control

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

TEST_F(ServerCoreTest, AnExchangeWaitsForAllAndNamesTheMissing) {
  Start({.trainers = 3});
  JoinAll();
  const auto ask = [&](int trainer, bool give, int read, double wait) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("stats");
    if (give) request.set_contribution(absl::StrCat("of ", trainer));
    request.set_read_trainer(read);
    request.set_wait_s(wait);
    return request.SerializeAsString();
  };
  const auto waiting = Call(Method::kExchange, ask(0, true, 2, 20));
  EXPECT_FALSE(waiting->has_value());
  const auto asked = CallNow<v1::ExchangeReply>(Method::kExchange, ask(1, true, -1, 0));
  ASSERT_TRUE(asked.ok());
  EXPECT_FALSE(asked->ready());
  EXPECT_THAT(asked->missing(), ElementsAre(2));
  EXPECT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, ask(2, true, -1, 0))->ready());
  ASSERT_TRUE(waiting->has_value());
  v1::ExchangeReply reply;
  ASSERT_TRUE(reply.ParseFromString(Flatten(***waiting)));
  EXPECT_EQ(reply.contribution(), "of 2");
  EXPECT_EQ(CallNow<v1::ExchangeReply>(Method::kExchange, ask(2, false, 0, 0))->contribution(), "of 0");
}

TEST_F(ServerCoreTest, WhatIsPostedTakesThePlaceOfWhatWasAndNobodyWaits) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  const auto post = [&](int trainer, int64_t edition, const std::string& bytes, int chunk = 0, int chunks = 1) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("k");
    request.set_edition(edition);
    request.set_contribution(bytes);
    request.set_chunk(chunk);
    request.set_chunks(chunks);
    return CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status();
  };
  // Returns edition and bytes of the posted contribution, chunk by chunk.
  const auto posted = [&](int of) {
    std::string text;
    for (int chunk = 0, chunks = 1; chunk < chunks; ++chunk) {
      v1::ExchangeRequest request;
      *request.mutable_caller() = CallerOf(0);
      request.set_key("k");
      request.set_edition(0);
      request.set_read_trainer(of);
      request.set_chunk(chunk);
      const auto reply = CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString());
      if (!reply.ok() || !reply->ready()) return std::string(reply.status().message());
      chunks = reply->chunks();
      if (chunk == 0) text = reply->has_edition() ? absl::StrCat(reply->edition(), ":") : "none";
      text += reply->contribution();
    }
    return text;
  };
  EXPECT_EQ(posted(1), "none");
  ASSERT_TRUE(post(1, 0, "first").ok());
  EXPECT_EQ(posted(1), "0:first");
  EXPECT_EQ(posted(2), "none");
  // Half of a newer edition does not count yet, and a repeated chunk of the old one changes nothing.
  ASSERT_TRUE(post(1, 20, "ond", 1, 2).ok());
  ASSERT_TRUE(post(1, 0, "other").ok());
  ASSERT_TRUE(post(1, 10, "late").ok());
  EXPECT_EQ(posted(1), "0:first");
  ASSERT_TRUE(post(1, 20, "sec", 0, 2).ok());
  EXPECT_EQ(posted(1), "20:second");
  ASSERT_TRUE(post(1, 20, "other", 0, 1).ok());
  EXPECT_EQ(posted(1), "20:second");
  EXPECT_STATUS(post(1, -1, "x"), kInvalidArgument, "edition -1");
  EXPECT_STATUS(post(1, 30, "x", 2, 2), kInvalidArgument, "chunk 2 of 2");
  ASSERT_TRUE(post(1, 30, "x", 0, 2).ok());
  EXPECT_STATUS(post(1, 30, "x", 0, 3), kInvalidArgument, "announces 3 chunks now and 2 before");
  EXPECT_THAT(posted(3), HasSubstr("reads trainer 3, the job has 3"));
}

TEST_F(ServerCoreTest, ExchangesThatMakeNoSenseAreRefused) {
  Start({.servers = 2, .trainers = 2}, /*server=*/1);
  JoinAll();
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerOf(0);
  request.set_key("k");
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument,
                "server 0");
  Start({.trainers = 2});
  JoinAll();
  *request.mutable_caller() = CallerOf(0);
  request.set_contribution("x");
  request.set_chunks(100000);
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument,
                "chunk");
  request.set_chunks(2);
  ASSERT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).ok());
  request.set_chunks(3);
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument,
                "a key is used once");
}

TEST_F(ServerCoreTest, ControlIsTheDutyOfTrainerZero) {
  Start({.trainers = 2});
  JoinAll();
  EXPECT_TRUE(Digest(0).ok());
  EXPECT_STATUS(Digest(1).status(), kFailedPrecondition,
                "Control is called by trainer 0 (trainer:0); this is trainer 1");
}

TEST_F(ServerCoreTest, InAsyncControlPassesToTheNextWhenTheFirstIsDead) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  EXPECT_STATUS(Digest(1).status(), kUnavailable, "trainer 0");
  Pass(12, {1, 2});  // a lease is ten seconds
  EXPECT_TRUE(Digest(1).ok());
  EXPECT_STATUS(Digest(2).status(), kUnavailable, "trainer 1");
  ASSERT_TRUE(Beat(1, [](v1::HeartbeatRequest& beat) { beat.set_done(true); }).ok());
  EXPECT_TRUE(Digest(2).ok());
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

TEST_F(ServerCoreTest, ControlWithoutADirectoryOrAtAnotherStepIsRefused) {
  Start({});
  JoinAll();
  v1::ControlRequest request;
  *request.mutable_caller() = CallerOf(0);
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kInvalidArgument,
                "no action");
  request.mutable_save()->set_name("step-000000000000.tmp");
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kFailedPrecondition,
                "no checkpoint directory");
  request.mutable_digest()->set_step(3);
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kFailedPrecondition,
                "is at step 0, asked for step 3");
}

// ------------------------------------------------------------------------------------------------------------ programs

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

}  // namespace
}  // namespace weir
