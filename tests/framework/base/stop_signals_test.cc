// Signals that ask for an end, and ends that nothing may hold up.

#include "framework/process/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "framework/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

bool Blocked(int signal) {
  sigset_t set;
  pthread_sigmask(SIG_SETMASK, nullptr, &set);
  return sigismember(&set, signal) == 1;
}

// Constructors of objects like this one, here and in libraries, are most of a program's start.
const bool held_early = Blocked(SIGTERM) && Blocked(SIGINT) && Blocked(SIGHUP);

TEST(StopSignalsTest, AreHeldBackBeforeTheProgramsConstructorsRun) { EXPECT_TRUE(held_early); }

// Sends one to this process. Whether it was asked to end, within 10 s.
bool AsksForTheEnd(int signal) {
  StopSignals signals;
  std::promise<void> asked;
  signals.OnStop([&asked] { asked.set_value(); });
  ::kill(::getpid(), signal);
  const bool heard = asked.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  signals.OnStop({});
  return heard && signals.requested();
}

TEST(StopSignalsTest, TheFirstAsksForAnOrderlyEndWhicheverItIs) {
  EXPECT_TRUE(AsksForTheEnd(SIGTERM));
  EXPECT_TRUE(AsksForTheEnd(SIGINT));
  EXPECT_TRUE(AsksForTheEnd(SIGHUP));
}

TEST(StopSignalsTest, OneThatCameBeforeAnybodyAskedIsNotLost) {
  ::kill(::getpid(), SIGTERM);
  StopSignals signals;
  std::promise<void> asked;
  signals.OnStop([&asked] { asked.set_value(); });
  EXPECT_EQ(asked.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  signals.OnStop({});
}

[[noreturn]] void WaitForEver() {
  while (true) ::pause();
}

TEST(StopSignalsDeathTest, ASecondSigtermEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::promise<void> asked;
        signals.OnStop([&asked] { asked.set_value(); });
        ::kill(::getpid(), SIGHUP);
        asked.get_future().wait();
        // A terminal that goes away may say so twice.
        ::kill(::getpid(), SIGHUP);
        ::kill(::getpid(), SIGTERM);
        WaitForEver();
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "second SIGTERM: ends at once");
}

TEST(StopSignalsDeathTest, ASigtermThatComesTwiceAtOnceIsOneRequest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::promise<void> asked;
        signals.OnStop([&asked] { asked.set_value(); });
        ::kill(::getpid(), SIGTERM);
        asked.get_future().wait();
        ::kill(::getpid(), SIGTERM);
        // A SIGINT is another request: it comes behind the SIGTERM, and says that this has been heard.
        ::kill(::getpid(), SIGINT);
        WaitForEver();
      },
      ::testing::ExitedWithCode(128 + SIGINT), "second SIGINT: ends at once");
}

TEST(StopSignalsDeathTest, ASighupThatIsIgnoredAsksForNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        // nohup sets this before the program starts, which then does not block the signal: unblock it here.
        sigset_t hang_up;
        sigemptyset(&hang_up);
        sigaddset(&hang_up, SIGHUP);
        pthread_sigmask(SIG_UNBLOCK, &hang_up, nullptr);
        StopSignals signals;
        std::promise<void> asked;
        signals.OnStop([&asked] { asked.set_value(); });
        ::kill(::getpid(), SIGHUP);
        const bool heard = asked.get_future().wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
        signals.OnStop({});
        ::_exit(heard ? 1 : 7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(StopSignalsDeathTest, AnEndThatDoesNotComeIsMade) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StopSignals signals;
        signals.EndWithin(absl::Milliseconds(50), 3, "pserver: trainer 1 is dead; the network has not shut down");
        WaitForEver();
      },
      ::testing::ExitedWithCode(3), "pserver: trainer 1 is dead; the network has not shut down");
}

TEST(StopSignalsTest, AnEndThatComesIsLeftAlone) {
  StopSignals signals;
  signals.EndWithin(absl::Hours(1), 3, "never said");
  signals.EndWithin(absl::InfiniteDuration(), 3, "never said");
}

}  // namespace
}  // namespace weir
