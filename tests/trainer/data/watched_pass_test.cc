#include "trainer/data/watched_pass.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

PassWatch WatchOf(absl::Duration deadline) {
  return {.what = "streams 2 to 3", .slow_warning = deadline / 2, .progress_deadline = deadline};
}

TEST(WatchedPassTest, GivesWhatThePassGives) {
  const auto done = RunWatched(WatchOf(absl::Seconds(60)), [](const std::function<bool()>& cancelled) {
    EXPECT_FALSE(cancelled());
    return absl::StatusOr<std::string>("all of it");
  });
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(*done, "all of it");
  const auto failed = RunWatched(WatchOf(absl::Seconds(60)), [](const std::function<bool()>&) {
    return absl::StatusOr<std::string>(absl::DataLossError("line 7"));
  });
  EXPECT_EQ(failed.status(), absl::DataLossError("line 7"));
}

TEST(WatchedPassTest, APassThatIsStuckIsNamedAndLeftBehind) {
  // Stands in for a disk that answers only long after the call has returned.
  const auto answer = std::make_shared<std::atomic<bool>>(false);
  const auto left = std::make_shared<std::atomic<bool>>(false);
  const auto stuck = RunWatched(WatchOf(absl::Milliseconds(200)), [=](const std::function<bool()>& cancelled) {
    while (!*answer) std::this_thread::yield();
    *left = cancelled();
    return absl::StatusOr<std::string>("too late");
  });
  EXPECT_EQ(stuck.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stuck.status().message()), HasSubstr("streams 2 to 3: no line has been read for"));
  EXPECT_THAT(std::string(stuck.status().message()), HasSubstr("deadlines.progress_deadline_s"));
  *answer = true;
  for (int i = 0; i < 2000 && !*left; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(*left);
}

TEST(WatchedPassTest, ASlowPassThatGivesSignsOfLifeMayTakeLongerThanTheDeadline) {
  const auto slow = RunWatched(WatchOf(absl::Seconds(2)), [](const std::function<bool()>& cancelled) {
    const absl::Time end = absl::Now() + absl::Seconds(5);
    while (absl::Now() < end) {
      if (cancelled()) return absl::StatusOr<std::string>(absl::CancelledError());
      absl::SleepFor(absl::Milliseconds(10));
    }
    return absl::StatusOr<std::string>("through");
  });
  EXPECT_TRUE(slow.ok()) << slow.status();
}

TEST(WatchedPassTest, TheJobsEndEndsIt) {
  PassWatch watch = WatchOf(absl::Seconds(600));
  watch.keep_waiting = [] { return absl::AbortedError("server 1 is dead"); };
  const auto ended = RunWatched(watch, [](const std::function<bool()>& cancelled) {
    while (!cancelled()) std::this_thread::yield();
    return absl::StatusOr<std::string>("nobody wants it");
  });
  EXPECT_EQ(ended.status(), absl::AbortedError("server 1 is dead"));
}

TEST(WatchedPassTest, APassThatNobodyWantsFromTheBeginningGivesNothing) {
  PassWatch watch = WatchOf(absl::Seconds(600));
  watch.keep_waiting = [] { return absl::CancelledError("asked to stop"); };
  const auto ended =
      RunWatched(watch, [](const std::function<bool()>&) { return absl::StatusOr<std::string>("all of it"); });
  EXPECT_EQ(ended.status(), absl::CancelledError("asked to stop"));
}

}  // namespace
}  // namespace weir
