// How launch accompanies processes: their output and logs, failures and who is blamed, signals, ends and restarts.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/launched.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LaunchSupervisionTest : public LaunchTest {};

TEST_F(LaunchSupervisionTest, LinesCarryTheNameOfTheirProcessAndGoToItsLog) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER_1", "out hello;err trouble;partial cut short"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.1] hello"), Contains("[trainer.1] cut short"),
                                       Contains(StartsWith("[pserver.0] ready server=0 endpoint=127.0.0.1:"))));
  EXPECT_THAT(Lines(result.err), Contains("[trainer.1] trouble"));
  EXPECT_THAT(Log("trainer.1"), AllOf(HasSubstr("hello\n"), HasSubstr("trouble\n"), HasSubstr("cut short\n")));
  EXPECT_THAT(Log("trainer.1"), Not(HasSubstr("[trainer.1]")));
  EXPECT_EQ(Log("trainer.0"), "");
  EXPECT_THAT(Log("pserver.0"), StartsWith("ready server=0"));
}

TEST_F(LaunchSupervisionTest, ARunWithFewerTrainersTruncatesTheLogsItUses) {
  Run(1, 1, {{"FAKE_TRAINER", "out first run"}});
  Run(1, 1, {{"FAKE_TRAINER", "out second run"}});
  EXPECT_EQ(Log("trainer.0"), "second run\n");
}

TEST_F(LaunchSupervisionTest, TheChiefsDoneLineIsTheLastLineUnprefixed) {
  const Result result = Run(2, 2,
                            {{"FAKE_TRAINER_0", "out done steps=1 loss=9;out done steps=10 loss=0.5;out bye"},
                             {"FAKE_TRAINER_1", "out done steps=7"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Lines(result.out).back(), "done steps=10 loss=0.5");
  EXPECT_THAT(Lines(result.out), Not(Contains("done steps=7")));
}

TEST_F(LaunchSupervisionTest, WhatTheChiefPredictedIsTheLastLineUnprefixed) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER_0", "out predicted examples=9 output=x;out bye"}});
  EXPECT_EQ(Lines(result.out).back(), "predicted examples=9 output=x");
}

TEST_F(LaunchSupervisionTest, TheFirstFailureIsNamedWithItsCodeAndLastLines) {
  const std::string a = (directory_ / "a").string(), b = (directory_ / "b").string();
  const Result result =
      Run(2, 3,
          {{"FAKE_TRAINER_0", "block;touch " + a + ";wait"},
           {"FAKE_TRAINER_1", "block;touch " + b + ";wait"},
           {"FAKE_TRAINER_2", "await " + a + ";await " + b + ";repeat 20 line;err no such file: train.tsv;exit 7"}});
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.2 failed: exit code 7; ending the others\n"));
  const std::string log = (logs_ / "trainer.2.log").string();
  const size_t report = result.err.find("launch: trainer.2 failed: exit code 7; the last lines of " + log + ":\n");
  ASSERT_NE(report, std::string::npos) << result.err;
  EXPECT_THAT(result.err.substr(report), AllOf(HasSubstr("launch:   no such file: train.tsv\n"),
                                               HasSubstr("launch:   19 line\n"), Not(HasSubstr("launch:   3 line\n"))));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[trainer.0] got signal 15"), HasSubstr("[trainer.1] got signal 15")));
}

TEST_F(LaunchSupervisionTest, AKilledProcessGivesItsSignal) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "wait"}, {"FAKE_TRAINER_0", "raise 9"}});
  EXPECT_EQ(result.code, 128 + 9);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: killed by signal 9 (Killed); the last lines"));
  EXPECT_THAT(result.err, HasSubstr("(it said nothing)"));
  EXPECT_THAT(result.err, HasSubstr("launch: launch has not sent that signal to trainer.0; the system "));
}

TEST_F(LaunchSupervisionTest, AServerThatFailsIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_TRAINER", "wait"}, {"FAKE_PSERVER_1", "exit 4"}});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 failed: exit code 4"));
}

TEST_F(LaunchSupervisionTest, TheBearerOfBadNewsIsNotBlamed) {
  // trainer.0 notices that trainer.1 is lost before trainer.1 has ended.
  const std::string news = (directory_ / "news").string();
  const Result result = Run(1, 2,
                            {{"FAKE_TRAINER_0", "touch " + news + ";exit 3"},
                             {"FAKE_TRAINER_1", "await " + news + ";err the culprit;exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 2; the last lines"));
  EXPECT_THAT(result.err, HasSubstr("launch:   the culprit"));
}

TEST_F(LaunchSupervisionTest, ALostPeerThatNobodyIsIsTheMessengersFailure) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER_0", "exit 3"}, {"FAKE_TRAINER_1", "wait"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: exit code 3; the last lines"));
}

TEST_F(LaunchSupervisionTest, WhoDoesNotEndWithinTwoLeasesIsKilled) {
  const std::string ready = (directory_ / "ready").string();
  const Result result = Run(
      1, 2,
      {{"FAKE_TRAINER_0", "block;child;touch " + ready + ";ignore"}, {"FAKE_TRAINER_1", "await " + ready + ";exit 7"}});
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("did not end within two leases"));
}

TEST_F(LaunchSupervisionTest, KeepGoingLetsTheOthersFinish) {
  const std::string dead = (directory_ / "dead").string();
  const Result result =
      Run(1, 2,
          {{"FAKE_TRAINER_0", "await " + dead + ";out done steps=3"}, {"FAKE_TRAINER_1", "touch " + dead + ";exit 6"}},
          {"--keep_going"});
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 6; the others go on"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=3");
}

TEST_F(LaunchSupervisionTest, ASignalIsPassedOnOnceAndACleanEndIsZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Launched launched(Arguments(2, 2), {{"FAKE_TRAINER", "wait"}});
    launched.Await("] waiting", 2);
    kill(launched.pid(), signal);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string got = absl::StrCat("got signal ", signal);
    EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.0] " + got), Contains("[trainer.1] " + got)));
    EXPECT_THAT(result.out, Not(HasSubstr("second signal")));
  }
}

TEST_F(LaunchSupervisionTest, AJobThatWasStoppedIsNeitherCompleteNorFailed) {
  struct Case {
    std::vector<std::string> flags;
    int code;
  };
  for (const Case& c : {Case{{}, 5}, Case{{"--stop_code=75"}, 75}, Case{{"--stop_code=0"}, 0}}) {
    Launched launched(Arguments(1, 2, c.flags), {{"FAKE_TRAINER", "halt"}});
    launched.Await("] waiting", 2);
    kill(launched.pid(), SIGTERM);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, c.code) << result.err;
    EXPECT_EQ(Lines(result.out).back(), "done steps=3 stopped=1");
    EXPECT_THAT(result.err, Not(HasSubstr("failed")));
  }
}

TEST_F(LaunchSupervisionTest, AStopThatAnotherProcessWasAskedForIsOneToo) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "out done steps=3 stopped=1;exit 5"}});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(Lines(result.out).back(), "done steps=3 stopped=1");
  EXPECT_THAT(result.err, Not(HasSubstr("failed")));
}

TEST_F(LaunchSupervisionTest, AJobThatWasStoppedIsNotStartedAgain) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "exit 5"}}, {"--restarts=3"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, Not(HasSubstr("restart")));
}

TEST_F(LaunchSupervisionTest, AFailureBesideAStopCounts) {
  const std::string dead = (directory_ / "dead").string();
  const Result result =
      Run(1, 2, {{"FAKE_TRAINER_0", "await " + dead + ";exit 5"}, {"FAKE_TRAINER_1", "touch " + dead + ";exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 2; the last lines"));
}

TEST_F(LaunchSupervisionTest, AProcessThatWasStoppedIsNotBlamedForALostPeer) {
  const std::string lost = (directory_ / "lost").string();
  const Result result =
      Run(1, 2, {{"FAKE_TRAINER_0", "await " + lost + ";exit 5"}, {"FAKE_TRAINER_1", "touch " + lost + ";exit 3"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 3; the last lines"));
}

// While a program is loaded, SIGTERM would kill it.
TEST_F(LaunchSupervisionTest, SignalsThatAskForAnEndWaitUntilAProgramIsThere) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER", "held"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), Contains("[trainer.0] held 1 2 15"));
}

// A terminal that goes away says so, and the shell in it may say so too.
TEST_F(LaunchSupervisionTest, ASecondHangUpKillsNobody) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "wait"}});
  launched.Await("] waiting", 2);
  kill(launched.pid(), SIGHUP);
  launched.Await("is passed on");
  kill(launched.pid(), SIGHUP);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.0] got signal ", SIGHUP)));
}

TEST_F(LaunchSupervisionTest, AnEndThatIsNotCleanAfterASignalIsNot) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "wait"}, {"FAKE_TRAINER_1", "out waiting;ignore"}});
  launched.Await("] waiting", 2);
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  launched.Await("got signal");
  kill(launched.pid(), SIGTERM);  // the same request again
  kill(launched.pid(), SIGINT);
  EXPECT_EQ(launched.Finish().code, 128 + SIGTERM);
}

TEST_F(LaunchSupervisionTest, ASecondSignalKillsEveryoneAtOnce) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "child;ignore"}});
  launched.Await("ignoring", 2);
  kill(launched.pid(), SIGINT);
  launched.Await("a second signal stops them at once");
  kill(launched.pid(), SIGINT);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("second signal"));
}

TEST_F(LaunchSupervisionTest, ASignalBeforeTheTrainersStartEndsTheServers) {
  for (const auto& [flag, code] : {std::pair{"--stop_code=5", 5}, std::pair{"--stop_code=0", 128 + SIGTERM}}) {
    Launched launched(Arguments(2, 1, {flag}), {{"FAKE_PSERVER", "unready"}});
    launched.Await("waiting for pserver.0, pserver.1 to be ready");
    kill(launched.pid(), SIGTERM);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("before the trainers were started"), Not(HasSubstr("failed"))));
  }
}

TEST_F(LaunchSupervisionTest, ASecondSignalBeforeTheTrainersStartKillsTheServers) {
  Launched launched(Arguments(1, 1), {{"FAKE_PSERVER", "unready;ignore"}});
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  launched.Await("before the trainers were started");
  kill(launched.pid(), SIGINT);
  EXPECT_EQ(launched.Finish().code, 128 + SIGTERM);
}

TEST_F(LaunchSupervisionTest, ASignalAfterAFailureBeforeTheTrainersStartHidesNothing) {
  WriteJob("deadlines { lease_s: 25 slow_warning_s: 0.1 }");
  const std::string here = (directory_ / "here").string(), stopped = (directory_ / "stopped").string();
  Launched launched(Arguments(2, 1),
                    {{"FAKE_PSERVER_0", "unready;await " + here + ";exit 2"},
                     {"FAKE_PSERVER_1", "unready;block;touch " + here + ";await " + stopped + ";exit 5"}});
  launched.Await("failed: exit code 2");
  kill(launched.pid(), SIGTERM);
  launched.Await("before the trainers were started");
  std::ofstream(stopped) << "";
  EXPECT_EQ(launched.Finish().code, 2);
}

TEST_F(LaunchSupervisionTest, NobodyOutlivesALaunchThatIsKilled) {
  Launched launched(Arguments(2, 2), {{"FAKE_TRAINER", "ignore"}});
  launched.Await("ignoring", 2);
  kill(launched.pid(), SIGKILL);
  EXPECT_EQ(launched.Finish().code, -SIGKILL);
}

TEST_F(LaunchSupervisionTest, WhatAProcessLeavesBehindEndsWithIt) {
  EXPECT_EQ(Run(1, 1, {{"FAKE_TRAINER", "child;exit 0"}}).code, 0);
}

TEST_F(LaunchSupervisionTest, AServerThatIsNeverReadyIsNamed) {
  WriteJob("deadlines { lease_s: 0.3 connect_deadline_s: 0.5 slow_warning_s: 0.2 }");
  const Result result = Run(3, 1, {{"FAKE_PSERVER_1", "unready"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: waiting for pserver.1 to be ready"));
  EXPECT_THAT(result.err, HasSubstr("pserver.1 was not ready within 1 s (deadlines.connect_deadline_s of the job)"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchSupervisionTest, AServerThatFailsAtStartStopsBeforeTheTrainers) {
  const Result result = Run(
      2, 1,
      {{"FAKE_PSERVER_0", "unready"}, {"FAKE_PSERVER_1", "unready;err job.textproto:3:1: unknown field 'nam';exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 failed: exit code 2; the last lines"));
  EXPECT_THAT(result.err, HasSubstr("launch:   job.textproto:3:1: unknown field 'nam'"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchSupervisionTest, AServerThatOutlivesTheTrainersIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_PSERVER_1", "ignore"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 did not end within three leases"));
}

TEST_F(LaunchSupervisionTest, ATrainerThatOutlivesTheServersIsNamedAndKilled) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string begun = (directory_ / "begun").string(), done = (directory_ / "done").string();
  const Result result = Run(1, 2,
                            {{"FAKE_PSERVER", "await " + done + ";exit 0"},
                             {"FAKE_TRAINER_0", "await " + begun + ";out done steps=9;touch " + done},
                             {"FAKE_TRAINER_1", "block;touch " + begun + ";ignore"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 did not end within three leases (0 s) after the last server: "));
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 did not end within two leases (0 s): killed"));
}

// Waits until the process is stopped that has said "stopped by PID".
void AwaitStop(const std::string& output) {
  const size_t at = output.find("stopped by ");
  ASSERT_NE(at, std::string::npos) << output;
  const std::string stat = absl::StrCat("/proc/", std::atoi(output.c_str() + at + 11), "/stat");
  const absl::Time end = absl::Now() + kPatience;
  while (ReadFile(stat).find(") T ") == std::string::npos && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(LaunchSupervisionTest, AServerThatEndsBeforeTheTrainersAreDoneIsNamed) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string begun = (directory_ / "begun").string();
  const Result result = Run(2, 1,
                            {{"FAKE_PSERVER_0", "await " + begun + ";exit 0"},
                             {"FAKE_PSERVER_1", "ignore"},
                             {"FAKE_TRAINER_0", "unconnected;block;touch " + begun + ";ignore"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0 (exit code 0) ended before the trainers were done: pserver.1, "
                                    "trainer.0 did not end within three leases (0 s) after it; was it asked to end "
                                    "before they had joined?\n"));
}

TEST_F(LaunchSupervisionTest, AServerThatEndsWhileOthersStartIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_PSERVER_0", "exit 0"}, {"FAKE_PSERVER_1", "unready"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0 ended before the trainers were started\n"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchSupervisionTest, AProcessThatIsStoppedForTwoLeasesIsKilledAndNamed) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER_0", "wait"}, {"FAKE_TRAINER_1", "block;stop;ignore"}});
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[trainer.0] got signal 15"), Not(HasSubstr("[trainer.1] ignoring"))));
}

TEST_F(LaunchSupervisionTest, KeepGoingKillsAStoppedProcessAndLetsTheOthersFinish) {
  const std::string killed = (directory_ / "killed").string();
  Launched launched(Arguments(0, 2, {"--keep_going"}),
                    {{"FAKE_TRAINER_0", "unconnected;await " + killed + ";out done steps=3"},
                     {"FAKE_TRAINER_1", "unconnected;stop"}});
  launched.Await("launch: trainer.1 failed: killed by signal 9");
  std::ofstream(killed) << "";
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=3");
}

TEST_F(LaunchSupervisionTest, AProcessIsNamedThatIsStoppedWhenOthersHaveLostIt) {
  WriteJob("deadlines { lease_s: 25 }");
  const std::string stopped = (directory_ / "stopped").string();
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER_0", "await " + stopped + ";exit 3"}, {"FAKE_TRAINER_1", "stop"}});
  launched.Await("stopped by");
  AwaitStop(launched.so_far().out);
  std::ofstream(stopped) << "";
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: exit code 3; waiting for the others\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP), and the others have "
                                          "lost it: killed\n"),
                                Not(HasSubstr("did not end within two leases"))));
}

// Nobody there tells when the job is over.
TEST_F(LaunchSupervisionTest, AStoppedTrainerOfANodeWithoutServersIsKilledAndNamed) {
  const std::vector<std::string> flags = {"--servers=1",          "--nnodes=2",   "--node_rank=1",
                                          "--nproc_per_node=1",   "--keep_going", "--master_addr=203.0.113.1",
                                          "--node_addr=127.0.0.1"};
  const Result result = Launched(ArgumentsWithoutNumbers(flags), {{"FAKE_TRAINER_1", "unconnected;stop"}}).Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
}

TEST_F(LaunchSupervisionTest, AStoppedProcessOnAnotherHostIsKilledAndNamed) {
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"), {{"FAKE_TRAINER_0", "wait"}, {"FAKE_TRAINER_1", "stop"}})
          .Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 on 203.0.113.1 was stopped by a signal (SIGSTOP) for two leases "
                                    "(1 s): killed\n"));
}

TEST_F(LaunchSupervisionTest, TrainersWithoutServersOfTheirOwnAreNotHurried) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string done = (directory_ / "done").string();
  Launched launched(Arguments(0, 2), {{"FAKE_TRAINER_0", "unconnected;touch " + done},
                                      // Four leases longer.
                                      {"FAKE_TRAINER_1", "unconnected;await " + done + ";sleep 400;out done steps=9"}});
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(LaunchSupervisionTest, AProcessThatIsStoppedHearsTheFirstSignal) {
  WriteJob("deadlines { lease_s: 25 }");
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "block;stop;wait"}});
  launched.Await("stopped by");
  AwaitStop(launched.so_far().out);
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[trainer.0] got signal 15"));
}

TEST_F(LaunchSupervisionTest, OneSignalEndsProcessesThatDoNotAnswerIt) {
  WriteJob("deadlines { lease_s: 0.1 progress_deadline_s: 0.2 }");
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "block;ignore"}});
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0, trainer.0 neither ended nor said anything for 0 s "
                                    "(deadlines.progress_deadline_s) after Terminated\n"));
}

TEST_F(LaunchSupervisionTest, AClosedStandardOutputHoldsNothingUp) {
  WriteJob("deadlines { lease_s: 25 }");
  const absl::Time begin = absl::Now();
  const Result result =
      Launched(Arguments(1, 1), {{"FAKE_TRAINER", "out done steps=9"}}, [] { close(STDOUT_FILENO); }).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Log("trainer.0"), "done steps=9\n");
  // It would wait a lease for the console.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST_F(LaunchSupervisionTest, ALimitOfFilesEndsALogAndNotTheJob) {
  const Result result = Launched(Arguments(1, 1), {{"FAKE_TRAINER", "repeat 300 line;out done steps=9"}}, [] {
                          rlimit limit = {};
                          limit.rlim_cur = limit.rlim_max = 1000;
                          setrlimit(RLIMIT_FSIZE, &limit);
                        }).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("trainer.0.log: File too large (ulimit -f allows this process files of 1000 "
                                    "bytes); trainer.0 is shown here only"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=9");
}

TEST_F(LaunchSupervisionTest, AConsoleThatNobodyReadsHoldsNothingUp) {
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "repeat 20000 a line that is repeated many times over"}});
  EXPECT_EQ(launched.Finish(/*read_stdout=*/false).code, 0);
  EXPECT_EQ(Lines(Log("trainer.0")).size(), 20000u);
}

TEST_F(LaunchSupervisionTest, ServersOfANodeGoOnWithTrainersOfAnotherWhenItsOwnHaveFailed) {
  const std::string port = absl::StrCat("--master_port=", FreePorts(2));
  const auto node = [&](const std::string& rank) {
    return ArgumentsWithoutNumbers({"--servers=1", "--nnodes=2", "--node_rank=" + rank, "--nproc_per_node=1",
                                    "--master_addr=127.0.0.1", port, "--keep_going"});
  };
  Launched first(node("0"), {{"FAKE_TRAINER", "exit 6"}});
  first.Await("launch: trainer.0 failed: exit code 6; the others go on");
  // Longer than three leases.
  const Result second = Launched(node("1"), {{"FAKE_TRAINER", "sleep 1500;out done steps=3"}}).Finish();
  EXPECT_EQ(second.code, 0) << second.err;
  const Result result = first.Finish();
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, Not(HasSubstr("three leases")));
}

TEST_F(LaunchSupervisionTest, AnSshThatIsKilledIsNoHostThatHasNeverWorked) {
  const std::map<std::string, std::string> variables = {{"FAKE_SSH_LEAVE", (directory_ / "left").string()},
                                                        {"FAKE_TRAINER", "out done steps=3"}};
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.73:1", {"--restarts=1"}), variables).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("launch: restart 1 (--restarts=1, 0 left): host 203.0.113.73: no connection (ssh: killed by "
                        "signal 9 (Killed)); the job starts again"));
  // Another host that has not answered by then has not failed.
  std::filesystem::remove(directory_ / "left");
  std::map<std::string, std::string> slow = variables;
  slow["FAKE_SSH_SLOW"] = (directory_ / "slow").string();
  const Result two =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.73:1,203.0.113.74:1", {"--restarts=1"}), slow).Finish();
  EXPECT_EQ(two.code, 0) << two.err;
  // With a host that refuses the key, no signal matters.
  std::filesystem::remove(directory_ / "left");
  const Result refused = Launched(RemoteArguments("127.0.0.1:1,203.0.113.67:1", {"--restarts=1"}), variables).Finish();
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("launch: the job is not started again: it has not begun"));
}

TEST_F(LaunchSupervisionTest, AJobGoesOnWithoutTheHostsThatAreGoneAndNoOthers) {
  const std::map<std::string, std::string> variables = {{"FAKE_SSH_LEAVE", (directory_ / "left").string()},
                                                        {"FAKE_TRAINER_0", "sleep 100;out done steps=3"},
                                                        {"FAKE_TRAINER_1", "sleep 100"},
                                                        {"FAKE_TRAINER_2", "raise 9"}};
  const std::string hosts = "127.0.0.1:1,203.0.113.76:1,203.0.113.75:1";
  const Result result = Launched(RemoteArguments(hosts, {"--restarts=3", "--min_trainers=2"}), variables).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("launch: restart 1 (--restarts=3, 2 left): trainer.2 on 203.0.113.75 failed: "
                              "killed by signal 9 (Killed); the job starts again"),
                    HasSubstr("launch: restart 2 (--restarts=3, 1 left): host 203.0.113.75: no connection "
                              "(ssh: exit code 255): ssh: connect to host 203.0.113.75 port 22: No route to "
                              "host; the job starts again"),
                    HasSubstr("launch: goes on without 203.0.113.75: 2 of 3 trainers"), Not(HasSubstr("restart 3"))));
}

TEST_F(LaunchSupervisionTest, AJobThatNeedsMoreTrainersTriesItsHostsAgain) {
  const std::map<std::string, std::string> variables = {{"FAKE_SSH_LEAVE", (directory_ / "left").string()},
                                                        {"FAKE_TRAINER_0", "sleep 100;out done steps=3"},
                                                        {"FAKE_TRAINER_1", "raise 9"}};
  const std::vector<std::string> flags = {"--restarts=2", "--min_trainers=2"};
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.75:1", flags), variables).Finish();
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: tries 203.0.113.75 again: the other hosts have slots for 1 of "
                                          "--min_trainers=2"),
                                HasSubstr("launch: the job is not started again: no restart is left (--restarts=2)")));
}

TEST_F(LaunchSupervisionTest, ARemoteProcessThatFailsIsNamedWithItsHost) {
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"),
               {{"FAKE_TRAINER", "block;wait"}, {"FAKE_TRAINER_2", "err no such file: train.tsv;raise 9"}})
          .Finish();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("launch: trainer.2 on 203.0.113.1 failed: killed by signal 9 (Killed); ending the others\n"),
            HasSubstr("launch:   no such file: train.tsv\n")));
  EXPECT_THAT(result.err, HasSubstr("; the last lines of " + (logs_ / "trainer.2.log").string()));
}

TEST_F(LaunchSupervisionTest, ASignalIsPassedOnToOtherHosts) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"), {{"FAKE_TRAINER", "wait"}});
  launched.Await("] waiting", 3);
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.0] got signal 15"), Contains("[trainer.2] got signal 15")));
}

TEST_F(LaunchSupervisionTest, RemoteProcessesThatDoNotEndAreKilled) {
  const std::string ready = (directory_ / "ready").string();
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                                 {{"FAKE_TRAINER_0", "await " + ready + ";exit 7"},
                                  {"FAKE_TRAINER_1", "block;child;touch " + ready + ";ignore"}})
                            .Finish();
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("trainer.1 on 203.0.113.1 did not end within two leases"));
}

TEST_F(LaunchSupervisionTest, NobodyOnOtherHostsOutlivesALaunchThatIsKilled) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"), {{"FAKE_TRAINER", "ignore"}});
  launched.Await("ignoring", 3);
  kill(launched.pid(), SIGKILL);
  EXPECT_EQ(launched.Finish().code, -SIGKILL);
}

// The stand-in for ssh becomes the agent.
TEST_F(LaunchSupervisionTest, AnAgentThatSaysNothingIsGivenUp) {
  const std::string agent = (directory_ / "agent").string();
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                    {{"FAKE_TRAINER_0", "block;wait"}, {"FAKE_TRAINER_1", "parent " + agent + ";ignore"}});
  launched.Await("ignoring");
  kill(std::atoi(ReadFile(agent).c_str()), SIGSTOP);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, ContainsRegex("launch: trainer.1 on 203.0.113.1 failed: host 203.0.113.1: its agent has said "
                                        "nothing for [0-9]+s: it is stopped, or the network between the hosts is cut; "
                                        "ending the others"));
}

TEST_F(LaunchSupervisionTest, NobodyOutlivesAnAgentThatIsKilled) {
  const std::string agent = (directory_ / "agent").string();
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                    {{"FAKE_TRAINER_0", "block;wait"}, {"FAKE_TRAINER_1", "parent " + agent + ";ignore"}});
  launched.Await("ignoring");
  kill(std::atoi(ReadFile(agent).c_str()), SIGKILL);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 on 203.0.113.1 failed: the connection to 203.0.113.1 is lost"));
}

TEST_F(LaunchSupervisionTest, ALostConnectionIsNamed) {
  const std::string leave = (directory_ / "leave").string();
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.70:1"), {{"FAKE_SSH_LEAVE", leave},
                                                               {"FAKE_TRAINER_0", "block;wait"},
                                                               {"FAKE_TRAINER_1", "touch " + leave + ";ignore"}})
          .Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 on 203.0.113.70 failed: the connection to 203.0.113.70 is lost (ssh: "
                        "exit code 255); ending the others"));
}

TEST_F(LaunchSupervisionTest, ASignalWhileHostsAreAwaitedEndsLaunch) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.66:1", {"--ssh_timeout_s=1000"}), {});
  launched.Await("waiting for host 203.0.113.66 to be ready");
  kill(launched.pid(), SIGTERM);
  EXPECT_EQ(launched.Finish().code, 5);
}

}  // namespace
}  // namespace weir
