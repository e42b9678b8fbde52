// A trainer as a member of its job: calls, waits, heart-beats and exchanges, against servers that a test plays.

#include "pserver/member/member.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/status_message.h"
#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class MemberTest : public ::testing::Test {
 protected:
  MemberTest() {
    for (int s = 0; s < 2; ++s) {
      v1::JoinReply reply;
      reply.set_session(10 + static_cast<uint64_t>(s));
      reply.set_process(absl::StrCat("host:", s));
      servers_.Answer(s, Method::kJoin, reply);
    }
  }

  CallSettings Settings() {
    return {.job_name = "job",
            .trainer_id = 1,
            .trainers = 2,
            .process = "host:9",
            .rpc = absl::Seconds(1),
            .lease = absl::Seconds(10),
            .heartbeat_period = absl::Seconds(1),
            .slow_warning = absl::Seconds(5),
            .connect_deadline = absl::Milliseconds(1),
            .progress_deadline = absl::Milliseconds(1),
            .transport = &servers_,
            .clock = Clock::Real()};
  }
  absl::Status Join() {
    return member_.membership().Join({}, [](int, const v1::JoinReply&) { return absl::OkStatus(); });
  }
  // A call to server 0 that takes any answer.
  static CallPtr AnyControl() {
    return Calls::New(0, Method::kControl, {}, [](const Slices&) -> absl::StatusOr<bool> { return true; });
  }

  PlayedServers servers_;
  Member member_{Settings()};
};

TEST_F(MemberTest, JoiningTellsEveryServerWhoCallsAndOpensASession) {
  v1::JoinRequest introduction;
  introduction.set_plan_fingerprint(7);
  std::vector<int> welcomed;
  ASSERT_TRUE(member_.membership()
                  .Join(introduction,
                        [&](int server, const v1::JoinReply&) {
                          welcomed.push_back(server);
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_THAT(welcomed, ElementsAre(0, 1));
  const v1::JoinRequest request = servers_.Requests<v1::JoinRequest>(1, Method::kJoin).at(0);
  EXPECT_EQ(request.caller().trainer(), 1);
  EXPECT_EQ(request.server_index(), 1);
  EXPECT_EQ(request.plan_fingerprint(), 7u);
  EXPECT_EQ(request.process(), "host:9");
  EXPECT_EQ(member_.calls().CallerFor(1).session(), 11u);
}

TEST_F(MemberTest, ATrainerThatDoesNotLikeItsWelcomeGivesItsPlaceBack) {
  for (int s = 0; s < 2; ++s) servers_.Answer(s, Method::kHeartbeat, v1::HeartbeatReply());
  const absl::Status joined = member_.membership().Join({}, [](int server, const v1::JoinReply&) {
    return server == 1 ? absl::FailedPreconditionError("another directory") : absl::OkStatus();
  });
  EXPECT_EQ(joined.message(), "server 1: another directory");
  EXPECT_TRUE(servers_.Requests<v1::HeartbeatRequest>(0, Method::kHeartbeat).at(0).leave());
  EXPECT_TRUE(servers_.Requests<v1::HeartbeatRequest>(1, Method::kHeartbeat).at(0).leave());
  EXPECT_EQ(member_.calls().CallerFor(0).session(), 0u);
}

TEST_F(MemberTest, ACallIsRepeatedUntilTheServerAnswers) {
  servers_.Answer(0, Method::kControl, absl::UnavailableError("gone for a moment"));
  servers_.Answer(0, Method::kControl, v1::ControlReply());
  EXPECT_TRUE(member_.calls().Wait({AnyControl()}, "an answer", absl::Seconds(60)).ok());
  EXPECT_EQ(member_.counters().retries(), 1);
  EXPECT_EQ(member_.counters().messages(), 2);
}

TEST_F(MemberTest, DamagedAnswersAreReadOnceMore) {
  for (int i = 0; i < 2; ++i) servers_.Answer(0, Method::kControl, v1::ControlReply());
  int read = 0;
  const CallPtr call = Calls::New(0, Method::kControl, {}, [&](const Slices&) -> absl::StatusOr<bool> {
    ++read;
    return absl::DataLossError("not what was asked for");
  });
  const absl::Status status = member_.calls().Wait({call}, "an answer", absl::Seconds(60));
  EXPECT_EQ(status.message(), "server 0: not what was asked for");
  EXPECT_EQ(read, 2);
}

TEST_F(MemberTest, AWaitThatIsTooLongNamesTheServerTheLastTryAndTheCause) {
  member_.waits().SetHolder(Waits::kProgram, "server 0: trainer 0", "server 0 waits for trainer 0");
  const absl::Status status = member_.calls().Wait({AnyControl()}, "an answer", absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("for server 0: an answer; the last try: nobody there; server 0 waits for trainer 0"));
  EXPECT_EQ(member_.waits().held_by(Waits::kProgram), "");
}

TEST_F(MemberTest, WhileFilesAreAwaitedOnlyCallsThatNeedOtherTrainersAreNeverLate) {
  member_.job().SetAnyAwaitsFiles(true);
  const absl::Status late = member_.calls().Wait({AnyControl()}, "a control call", absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  servers_.Answer(0, Method::kControl, absl::UnavailableError("not all trainers have pushed"));
  servers_.Answer(0, Method::kControl, v1::ControlReply());
  const CallPtr of_all = AnyControl();
  of_all->needs_trainers = true;
  EXPECT_TRUE(member_.calls().Wait({of_all}, "an answer", absl::Milliseconds(1)).ok());
}

TEST_F(MemberTest, AnExchangeRestsWhileFilesAreAwaitedAndItsUploadDoesNot) {
  member_.job().SetAnyAwaitsFiles(true);
  const auto unheard = member_.exchanges().Exchange("key", "one", /*kept=*/false);
  EXPECT_TRUE(absl::IsDeadlineExceeded(unheard.status())) << unheard.status();
  servers_.Answer(0, Method::kExchange, v1::ExchangeReply());  // of the upload
  servers_.Answer(0, Method::kExchange, absl::UnavailableError("not all have come"));
  v1::ExchangeReply ready;
  ready.set_ready(true);
  ready.set_chunks(1);
  for (int i = 0; i < 3; ++i) servers_.Answer(0, Method::kExchange, ready);
  EXPECT_TRUE(member_.exchanges().Exchange("key", "one", /*kept=*/false).ok());
}

TEST_F(MemberTest, AnAbortedCallReportsTheFailureThatAHeartbeatBrings) {
  ASSERT_TRUE(Join().ok());
  servers_.Answer(0, Method::kControl, absl::AbortedError("the job has failed"));
  v1::HeartbeatReply failed;
  *failed.mutable_failure() = StatusMessage(absl::UnavailableError("trainer 0 is dead"));
  servers_.Answer(1, Method::kHeartbeat, failed);
  const absl::Status status = member_.calls().Wait({AnyControl()}, "an answer", absl::Seconds(60));
  EXPECT_EQ(status, absl::UnavailableError("trainer 0 is dead"));
  EXPECT_EQ(member_.job().failure(), status);
}

TEST_F(MemberTest, TheFailureOfTheJobGoesBeforeTheErrorOfACall) {
  member_.job().Fail(absl::InternalError("first"));
  member_.job().Fail(absl::InternalError("second"));
  servers_.Answer(0, Method::kControl, absl::InvalidArgumentError("no such thing"));
  EXPECT_EQ(member_.calls().Wait({AnyControl()}, "an answer", absl::Seconds(60)), absl::InternalError("first"));
}

TEST_F(MemberTest, CancellingEndsOnlyWaitsOfTheThreadAhead) {
  member_.waits().CancelAhead();
  const absl::Status status =
      member_.calls().Wait({AnyControl()}, "rows", absl::Seconds(60), {.thread = Waits::kAhead});
  EXPECT_EQ(status, absl::CancelledError("nobody waits any more for rows"));
  servers_.Answer(0, Method::kControl, v1::ControlReply());
  EXPECT_TRUE(member_.calls().Wait({AnyControl()}, "an answer", absl::Seconds(60)).ok());
}

TEST_F(MemberTest, HeartbeatsTellWhatTheProgramWaitsFor) {
  ASSERT_TRUE(Join().ok());
  member_.waits().SetOn(Waits::kProgram, "version 3");
  member_.waits().SetOn(Waits::kAhead, "rows");
  member_.heartbeats().Send(0);
  member_.waits().NeedAhead(true);
  member_.heartbeats().Send(0);
  const auto beats = servers_.Requests<v1::HeartbeatRequest>(0, Method::kHeartbeat);
  ASSERT_EQ(beats.size(), 2u);
  EXPECT_EQ(beats[0].waiting_for(), "version 3");
  EXPECT_EQ(beats[1].waiting_for(), "rows");
}

TEST_F(MemberTest, NobodyHearsOfATrainerThatHasNotJoined) {
  member_.heartbeats().SendToAll();
  EXPECT_THAT(servers_.Requests<v1::HeartbeatRequest>(0, Method::kHeartbeat), IsEmpty());
}

TEST_F(MemberTest, AnExpelledTrainerHasNothingToSayForTheJob) {
  ASSERT_TRUE(Join().ok());
  servers_.Answer(0, Method::kHeartbeat,
                  absl::FailedPreconditionError(absl::StrCat("trainer 1's lease has run out; it ", kCannotGoOn)));
  member_.heartbeats().Send(0);
  EXPECT_TRUE(member_.job().expelled());
  member_.membership().ReportFailure(absl::InternalError("a mistake"));
  EXPECT_THAT(servers_.Requests<v1::HeartbeatRequest>(1, Method::kHeartbeat), IsEmpty());
}

TEST_F(MemberTest, AFailureIsReportedWithTheNameOfItsTrainer) {
  ASSERT_TRUE(Join().ok());
  for (int s = 0; s < 2; ++s) servers_.Answer(s, Method::kHeartbeat, v1::HeartbeatReply());
  member_.job().SetStep(4);
  member_.membership().ReportFailure(absl::InternalError("a mistake"));
  const auto beats = servers_.Requests<v1::HeartbeatRequest>(1, Method::kHeartbeat);
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].failure().message(), "trainer 1 (host:9): a mistake");
  EXPECT_EQ(beats[0].step(), 4);
}

TEST_F(MemberTest, AnExchangeCollectsWhatEveryTrainerGave) {
  servers_.Answer(0, Method::kExchange, v1::ExchangeReply());  // of the upload
  v1::ExchangeReply ready;
  ready.set_ready(true);
  ready.set_chief(1);
  servers_.Answer(0, Method::kExchange, ready);
  for (const char* text : {"zero", "one"}) {
    v1::ExchangeReply reply = ready;
    reply.set_chunks(1);
    reply.set_contribution(text);
    servers_.Answer(0, Method::kExchange, reply);
  }
  const auto all = member_.exchanges().Exchange("key", "one", /*kept=*/false);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, ElementsAre("zero", "one"));
  EXPECT_EQ(member_.job().chief(), 1);
}

TEST_F(MemberTest, ASleepEndsWithAFailureThatHasNotBeenPassedOn) {
  member_.job().Fail(absl::InternalError("a mistake"));
  EXPECT_TRUE(member_.job().SleepUntil(std::chrono::steady_clock::now() + std::chrono::hours(1)));
  member_.job().RelayBegins();
  member_.job().Close();
  EXPECT_FALSE(member_.job().SleepUntil(std::chrono::steady_clock::now() + std::chrono::hours(1)));
}

TEST_F(MemberTest, WordsOfServersAreRepeatedWithoutControlCharacters) {
  ASSERT_TRUE(Join().ok());
  v1::HeartbeatReply failed;
  failed.mutable_failure()->set_message("server 0\x1b[2J\n" + std::string(5000, 'x'));
  servers_.Answer(1, Method::kHeartbeat, failed);
  member_.heartbeats().Send(1);
  EXPECT_THAT(std::string(member_.job().failure().message()), StartsWith("server 0\\x1b[2J\\x0axxx"));
  EXPECT_EQ(member_.job().failure().message().size(), 2000u);
}

TEST_F(MemberTest, ADeathIsLoggedWithWhatFollowsFromIt) {
  for (const bool sync : {true, false}) {
    CallSettings settings = Settings();
    settings.needs_all_trainers = sync;
    Member member(settings);
    for (int s = 0; s < 2; ++s) {
      v1::JoinReply reply;
      reply.set_session(20 + static_cast<uint64_t>(s));
      servers_.Answer(s, Method::kJoin, reply);
    }
    ASSERT_TRUE(member.membership().Join({}, [](int, const v1::JoinReply&) { return absl::OkStatus(); }).ok());
    v1::HeartbeatReply news;
    news.add_dead(0);
    servers_.Answer(0, Method::kHeartbeat, news);
    ::testing::internal::CaptureStderr();
    member.heartbeats().Send(0);
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        HasSubstr(sync ? "trainer 0 is dead (reported by server 0); the job ends, since a step needs all trainers"
                       : "trainer 0 is dead (reported by server 0); the others go on"));
  }
}

TEST_F(MemberTest, NoChiefAndNoDeadTrainerOutsideTheJob) {
  member_.job().SetChief(2);
  EXPECT_EQ(member_.job().chief(), 0);
  EXPECT_FALSE(member_.job().SetDead(2));
  EXPECT_TRUE(member_.job().SetDead(0));
  EXPECT_FALSE(member_.job().SetDead(0));
}

}  // namespace
}  // namespace weir
