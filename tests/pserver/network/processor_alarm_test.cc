#include "pserver/network/processor_alarm.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "framework/base/clock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

absl::Duration Used() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

TEST(ProcessorAlarmTest, AThreadIsWokenWhenOthersHaveUsedTheTime) {
  ProcessorAlarm alarm;
  ASSERT_TRUE(alarm.works());
  std::atomic<bool> done = false;
  std::thread busy([&done] {
    while (!done) {
    }
  });
  const absl::Time begin = Clock::Real()->Now();
  const absl::Duration before = Used();
  alarm.Await(absl::Milliseconds(50), kPatience);
  const absl::Duration used = Used() - before;
  done = true;
  busy.join();
  EXPECT_LT(Clock::Real()->Now() - begin, kPatience);
  EXPECT_GE(used, absl::Milliseconds(50));
}

TEST(ProcessorAlarmTest, AnIdleProcessIsNotWokenBeforeTheLimit) {
  ProcessorAlarm alarm;
  const absl::Duration limit = absl::Milliseconds(300);
  const absl::Time begin = Clock::Real()->Now();
  alarm.Await(kPatience, limit);
  EXPECT_GE(Clock::Real()->Now() - begin, limit);
}

TEST(ProcessorAlarmTest, ARingEndsTheNextWait) {
  ProcessorAlarm alarm;
  alarm.Ring();
  const absl::Time begin = Clock::Real()->Now();
  alarm.Await(kPatience, kPatience);
  EXPECT_LT(Clock::Real()->Now() - begin, kPatience);
}

TEST(ProcessorAlarmTest, ARingOfAnotherThreadEndsAWait) {
  ProcessorAlarm alarm;
  std::thread other([&alarm] { alarm.Ring(); });
  const absl::Time begin = Clock::Real()->Now();
  alarm.Await(kPatience, kPatience);
  EXPECT_LT(Clock::Real()->Now() - begin, kPatience);
  other.join();
}

TEST(ProcessorAlarmTest, AConnectionRingsAndNothingElseIsTakenForOne) {
  ProcessorAlarm alarm;
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), caller = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(here);
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  ASSERT_EQ(::bind(listener, address, length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, address, &length), 0);
  ASSERT_TRUE(alarm.RingOnConnections(listener));
  alarm.Ring();
  EXPECT_FALSE(alarm.Await(kPatience, kPatience));
  EXPECT_FALSE(alarm.Await(kPatience, absl::Milliseconds(1)));
  ASSERT_EQ(::connect(caller, address, length), 0);
  EXPECT_TRUE(alarm.Await(kPatience, kPatience));
  for (const int fd : {listener, caller}) ::close(fd);
}

}  // namespace
}  // namespace weir
