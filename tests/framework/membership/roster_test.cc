// Places of a job: who may take, hold and lose them; chief, failure and end. No parameters and no servers.

#include "framework/membership/roster.h"

#include <string>

#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class RosterTest : public ::testing::Test {
 protected:
  static Roster::Options OptionsFor(Roster::OnDeath on_death) {
    return {.job = "job",
            .self = "server 0 (here:1)",
            .trainers = 3,
            .on_death = on_death,
            .lease = absl::Seconds(10),
            .slow_warning = absl::Seconds(5),
            .progress_deadline = absl::Seconds(60),
            .connect_deadline = absl::Seconds(30)};
  }
  void Join(Roster& roster, int trainer) {
    roster.Join(trainer, "host:" + std::to_string(trainer), /*incarnation=*/7, now_);
    roster.Renew(trainer, now_);
  }
  void JoinAll(Roster& roster) {
    for (int t = 0; t < roster.size(); ++t) Join(roster, t);
  }
  v1::Caller CallerFor(const Roster& roster, int trainer) {
    v1::Caller caller;
    caller.set_job_id("job");
    caller.set_trainer(trainer);
    caller.set_session(roster.place(trainer).session);
    return caller;
  }
  static v1::HeartbeatRequest Beat(int64_t step, const std::string& waiting_for, bool awaits_files = false) {
    v1::HeartbeatRequest beat;
    beat.set_step(step);
    beat.set_waiting_for(waiting_for);
    beat.set_awaits_files(awaits_files);
    return beat;
  }
  // Lets time pass as it does for a keeper that looks often.
  void Pass(Roster& roster, absl::Duration d) {
    const absl::Time end = now_ + d;
    for (; now_ < end; now_ += absl::Seconds(1)) roster.BeginLook(now_);
    roster.BeginLook(now_);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  Roster lockstep_{OptionsFor(Roster::OnDeath::kFail), now_};
  Roster going_on_{OptionsFor(Roster::OnDeath::kGoOn), now_};
};

TEST_F(RosterTest, APlaceIsHeldByOneProcess) {
  EXPECT_TRUE(lockstep_.CheckClaim(1, "host:1", 7, now_).ok());
  Join(lockstep_, 1);
  EXPECT_TRUE(lockstep_.CheckClaim(1, "host:1", 7, now_).ok()) << "a repeat";
  // The holder may be dead, which a lease will show.
  EXPECT_EQ(lockstep_.CheckClaim(1, "host:2", 8, now_).code(), absl::StatusCode::kUnavailable);
  now_ += absl::Seconds(9);
  lockstep_.Renew(1, now_);
  EXPECT_EQ(lockstep_.CheckClaim(1, "host:2", 8, now_).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lockstep_.CheckClaim(1, "host:3", 9, now_).code(), absl::StatusCode::kUnavailable) << "another one";
  EXPECT_EQ(lockstep_.CheckClaim(1, "host:2", 8, now_).code(), absl::StatusCode::kUnavailable) << "counted anew";
  now_ += absl::Seconds(11);
  lockstep_.Renew(1, now_);
  const absl::Status other = lockstep_.CheckClaim(1, "host:2", 8, now_);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("is held by host:1 and claimed by host:2"));
  // Another process of the same name, as after a restart in a container.
  EXPECT_FALSE(lockstep_.CheckClaim(1, "host:1", 8, now_).ok());
  EXPECT_EQ(lockstep_.CheckClaim(3, "host:3", 7, now_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RosterTest, CallersAreKnownByTheirSession) {
  v1::Caller caller = CallerFor(lockstep_, 0);
  EXPECT_THAT(std::string(lockstep_.CheckCaller(caller, now_).message()), HasSubstr("has not joined"));
  JoinAll(lockstep_);
  caller = CallerFor(lockstep_, 0);
  EXPECT_TRUE(lockstep_.CheckCaller(caller, now_).ok());
  caller.set_session(caller.session() + 1);
  EXPECT_THAT(std::string(lockstep_.CheckCaller(caller, now_).message()), HasSubstr("cannot go on"));
  caller = CallerFor(lockstep_, 0);
  caller.set_job_id("another");
  EXPECT_FALSE(lockstep_.CheckCaller(caller, now_).ok());
}

// A server that was started again at the same address. To its trainers the one that they know is lost.
TEST_F(RosterTest, ACallerThatHasJoinedAnotherProcessHasLostItsServer) {
  v1::Caller caller = CallerFor(lockstep_, 0);
  EXPECT_EQ(lockstep_.CheckCaller(caller, now_).code(), absl::StatusCode::kFailedPrecondition);
  caller.set_session(7);
  const absl::Status lost = lockstep_.CheckCaller(caller, now_);
  EXPECT_EQ(lost.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("the process that it has joined is gone"));
}

TEST_F(RosterTest, ACallRenewsTheLease) {
  JoinAll(lockstep_);
  Pass(lockstep_, absl::Seconds(8));
  EXPECT_TRUE(lockstep_.CheckCaller(CallerFor(lockstep_, 0), now_).ok());
  Pass(lockstep_, absl::Seconds(8));
  const auto departure = lockstep_.TakeExpired(now_);
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->trainer, 1);
  EXPECT_FALSE(departure->freed);
  EXPECT_THAT(departure->text, HasSubstr("trainer 1 (host:1) is dead: no sign of life for 16 s, before its first"));
  EXPECT_EQ(lockstep_.TakeExpired(now_)->trainer, 2);
  EXPECT_FALSE(lockstep_.TakeExpired(now_).has_value());
}

TEST_F(RosterTest, InLockstepAPlaceIsFreeAgainUntilAllHaveJoined) {
  Join(lockstep_, 0);
  Pass(lockstep_, absl::Seconds(11));
  const auto departure = lockstep_.TakeExpired(now_);
  ASSERT_TRUE(departure.has_value());
  EXPECT_TRUE(departure->freed);
  EXPECT_TRUE(lockstep_.CheckClaim(0, "host:9", 1, now_).ok());
}

TEST_F(RosterTest, AKeeperThatOversleptGivesEveryoneHalfALease) {
  JoinAll(lockstep_);
  lockstep_.BeginLook(now_);
  now_ += absl::Seconds(20);
  lockstep_.BeginLook(now_);
  EXPECT_FALSE(lockstep_.TakeExpired(now_).has_value());
  Pass(lockstep_, absl::Seconds(6));
  EXPECT_TRUE(lockstep_.TakeExpired(now_).has_value());
}

TEST_F(RosterTest, TheLowestLivingTrainerTakesTheDutiesOfADeadChief) {
  JoinAll(going_on_);
  Pass(going_on_, absl::Seconds(8));
  going_on_.Renew(1, now_);
  going_on_.Renew(2, now_);
  Pass(going_on_, absl::Seconds(3));
  EXPECT_EQ(going_on_.TakeExpired(now_)->trainer, 0);
  EXPECT_EQ(going_on_.chief(), 1);
  EXPECT_TRUE(going_on_.Excused(0));
  EXPECT_TRUE(going_on_.Done(1));
  EXPECT_FALSE(going_on_.Done(1)) << "it was done before";
  EXPECT_EQ(going_on_.chief(), 2);
  // The place of the dead one is taken, but the duties stay where they are.
  EXPECT_TRUE(going_on_.CheckClaim(0, "host:9", 1, now_).ok());
  EXPECT_TRUE(going_on_.Join(0, "host:9", 1, now_));
  EXPECT_NE(going_on_.place(0).replaced, nullptr);
  EXPECT_EQ(going_on_.chief(), 2);
}

TEST_F(RosterTest, InLockstepNobodyIsExcusedAndTheChiefStays) {
  JoinAll(lockstep_);
  EXPECT_TRUE(lockstep_.Done(0));
  EXPECT_FALSE(lockstep_.Excused(0));
  EXPECT_EQ(lockstep_.chief(), 0);
}

TEST_F(RosterTest, AJoinThatAnotherServerRefusedIsUndone) {
  JoinAll(going_on_);
  ASSERT_TRUE(going_on_.Release(2, now_).ok());
  EXPECT_EQ(going_on_.place(2).state, RosterPlace::kAbsent);
  going_on_.Booked(1, /*step=*/0, now_);
  EXPECT_EQ(going_on_.Release(1, now_).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RosterTest, WhenTheSuccessorLeavesTheDeadOneIsStillKnown) {
  JoinAll(going_on_);
  Pass(going_on_, absl::Seconds(11));
  while (going_on_.TakeExpired(now_)) continue;
  const v1::Caller dead = CallerFor(going_on_, 0);
  // Twice: the second successor replaces the first dead process, too.
  for (const uint64_t incarnation : {8, 9}) {
    going_on_.Join(0, "host:0", incarnation, now_);
    EXPECT_THAT(std::string(going_on_.CheckCaller(dead, now_).message()), HasSubstr("has passed to host:0"));
    ASSERT_TRUE(going_on_.Release(0, now_).ok());
    EXPECT_EQ(going_on_.place(0).state, RosterPlace::kDead);
    EXPECT_THAT(std::string(going_on_.CheckCaller(dead, now_).message()), HasSubstr("was declared dead"));
    EXPECT_THAT(std::string(going_on_.CheckClaim(0, "host:0", 7, now_).message()), HasSubstr("was declared dead"));
    EXPECT_TRUE(going_on_.CheckClaim(0, "host:0", 10, now_).ok());
  }
}

TEST_F(RosterTest, WhoHasNotJoinedInTimeIsNamed) {
  Join(lockstep_, 1);
  now_ += absl::Seconds(31);
  const absl::Status status = lockstep_.WatchConnecting(now_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainers 0, 2 have not joined server 0 (here:1) within 30 s"));
}

TEST_F(RosterTest, TheOneWithoutProgressIsNamedAndNotThoseThatWait) {
  JoinAll(lockstep_);
  const auto waits = [](int trainer) { return trainer != 1; };
  now_ += absl::Seconds(6);
  EXPECT_TRUE(lockstep_.WatchProgress(now_, waits).ok());
  EXPECT_TRUE(lockstep_.place(1).slow);
  EXPECT_FALSE(lockstep_.place(0).slow);
  lockstep_.Progressed(1, now_);
  EXPECT_FALSE(lockstep_.place(1).slow);
  now_ += absl::Seconds(61);
  const absl::Status status = lockstep_.WatchProgress(now_, waits);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 1 (host:1) is slow: at step 0"));
}

TEST_F(RosterTest, OneThatWaitsForSomebodyElseHasTwiceTheTime) {
  JoinAll(lockstep_);
  lockstep_.Heard(1, Beat(/*step=*/3, "server 1: version 4"), now_);
  const auto waits = [](int trainer) { return trainer != 1; };
  now_ += absl::Seconds(100);
  EXPECT_TRUE(lockstep_.WatchProgress(now_, waits).ok());
  now_ += absl::Seconds(21);
  EXPECT_FALSE(lockstep_.WatchProgress(now_, waits).ok());
}

TEST_F(RosterTest, WhileOneAwaitsFilesItAndThoseThatWaitForOthersHaveAllTheTime) {
  JoinAll(lockstep_);
  const auto nobody = [](int) { return false; };
  lockstep_.Heard(0, Beat(3, "server 1: version 4"), now_);
  lockstep_.Heard(1, Beat(3, "new files of data.train", /*awaits_files=*/true), now_);
  lockstep_.Heard(2, Beat(3, "server 0: version 4"), now_);
  EXPECT_TRUE(lockstep_.AwaitsFiles());
  for (int i = 0; i < 10; ++i) {
    now_ += absl::Hours(1);
    EXPECT_TRUE(lockstep_.WatchProgress(now_, nobody).ok());
  }
  // From the first sign that the files are there the usual deadlines run.
  lockstep_.Heard(1, Beat(3, ""), now_);
  EXPECT_FALSE(lockstep_.AwaitsFiles());
  now_ += absl::Seconds(61);
  EXPECT_THAT(std::string(lockstep_.WatchProgress(now_, nobody).message()), HasSubstr("trainer 1 (host:1) is slow"));
}

TEST_F(RosterTest, OneThatComputesForEverIsNotExcusedByAnotherThatAwaitsFiles) {
  JoinAll(lockstep_);
  lockstep_.Heard(0, Beat(3, ""), now_);
  lockstep_.Heard(1, Beat(3, "", /*awaits_files=*/true), now_);
  lockstep_.Heard(2, Beat(3, "server 0: version 4"), now_);
  now_ += absl::Seconds(61);
  EXPECT_THAT(std::string(lockstep_.WatchProgress(now_, [](int) { return false; }).message()),
              HasSubstr("trainer 0 (host:0) is slow"));
}

TEST_F(RosterTest, AJobThatHasFailedIsFinishedWhenAllHaveBeenTold) {
  JoinAll(lockstep_);
  EXPECT_FALSE(lockstep_.Finished(now_));
  lockstep_.Fail(absl::UnavailableError("first"), now_);
  lockstep_.Fail(absl::UnavailableError("second"), now_);
  EXPECT_EQ(lockstep_.failure().message(), "first");
  EXPECT_FALSE(lockstep_.Finished(now_));
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(lockstep_.Aborted(t).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(lockstep_.Finished(now_), t == 2);
  }
}

TEST_F(RosterTest, AFailedJobWaitsForNobodyWhoseLeaseHasRunOut) {
  JoinAll(lockstep_);
  lockstep_.Fail(absl::UnavailableError("gone"), now_);
  EXPECT_FALSE(lockstep_.Finished(now_ + absl::Seconds(10)));
  EXPECT_TRUE(lockstep_.Finished(now_ + absl::Seconds(11)));
}

TEST_F(RosterTest, AStopDoesNotWaitForThoseWhoHaveNotCome) {
  Join(going_on_, 0);
  EXPECT_TRUE(going_on_.Done(0));
  EXPECT_FALSE(going_on_.Finished(now_));
  going_on_.RequestStop();
  EXPECT_TRUE(going_on_.Finished(now_));
}

// ----------------------------------------------------------------------------------------------------------- readers

v1::Caller ReaderOf(uint64_t session) {
  v1::Caller caller;
  caller.set_trainer(kReader);
  caller.set_session(session);
  return caller;
}

TEST_F(RosterTest, AReaderHoldsNoPlaceAndNoEndOfTheJobWaitsForIt) {
  const uint64_t session = *lockstep_.readers().Admit("host:9", 1, now_);
  EXPECT_TRUE(lockstep_.CheckCaller(ReaderOf(session), now_).ok());
  EXPECT_FALSE(lockstep_.Any(RosterPlace::kJoined));
  EXPECT_EQ(lockstep_.NameOf(ReaderOf(session)), "reader (host:9)");
  JoinAll(lockstep_);
  for (int t = 0; t < 3; ++t) EXPECT_TRUE(lockstep_.Done(t));
  EXPECT_TRUE(lockstep_.Finished(now_));
  lockstep_.Fail(absl::InternalError("no"), now_);
  EXPECT_EQ(lockstep_.Aborted(kReader).code(), absl::StatusCode::kAborted);
}

TEST_F(RosterTest, AReaderIsKnownByItsSessionAndMayNameTheJob) {
  v1::Caller caller = ReaderOf(*going_on_.readers().Admit("host:9", 1, now_));
  caller.set_job_id("job");
  EXPECT_TRUE(going_on_.CheckCaller(caller, now_).ok());
  caller.set_job_id("another");
  EXPECT_EQ(going_on_.CheckCaller(caller, now_).code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status stranger = going_on_.CheckCaller(ReaderOf(12345), now_);
  EXPECT_EQ(stranger.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("has no such reader"));
}

TEST_F(RosterTest, AReadersLeaseEndsAloneUnlessTheRosterWasAsleep) {
  JoinAll(lockstep_);
  const uint64_t session = *lockstep_.readers().Admit("host:9", 1, now_);
  lockstep_.BeginLook(now_);
  now_ += absl::Seconds(60);
  lockstep_.BeginLook(now_);
  EXPECT_TRUE(lockstep_.CheckCaller(ReaderOf(session), now_).ok());
  Pass(lockstep_, absl::Seconds(10));
  EXPECT_NE(lockstep_.readers().Find(session), nullptr);
  Pass(lockstep_, absl::Seconds(1));
  EXPECT_EQ(lockstep_.readers().Find(session), nullptr);
}

}  // namespace
}  // namespace weir
