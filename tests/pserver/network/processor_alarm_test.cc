#include "pserver/network/processor_alarm.h"

#include <time.h>

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

}  // namespace
}  // namespace weir
