// Locks and waits while the wall clock is set.

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/wall_clock.h"

namespace weir {
namespace {

constexpr int64_t kHour = 3600;

class WallClockTest : public testing::Test {
 protected:
  void TearDown() override { SetWallClock(0); }
};

// A wait for `timeout` begun before the wall clock is set `seconds` off. Nothing when it has not ended within 10 s.
std::optional<std::chrono::steady_clock::duration> WaitAcrossAStep(absl::Duration timeout, int64_t seconds) {
  struct Shared {
    Mutex mu;
    CondVar never;
    bool waits ABSL_GUARDED_BY(mu) = false;
    std::promise<std::chrono::steady_clock::duration> waited;
  };
  // May outlive this call.
  const auto shared = std::make_shared<Shared>();
  std::future<std::chrono::steady_clock::duration> waited = shared->waited.get_future();
  std::thread([shared, timeout] {
    const auto begin = std::chrono::steady_clock::now();
    MutexLock lock(&shared->mu);
    shared->waits = true;
    while (!shared->never.WaitWithTimeout(&shared->mu, timeout)) {
    }
    shared->waited.set_value(std::chrono::steady_clock::now() - begin);
  }).detach();
  while (true) {
    MutexLock lock(&shared->mu);
    if (shared->waits) break;
  }
  SetWallClock(seconds);
  if (waited.wait_for(std::chrono::seconds(10)) != std::future_status::ready) return std::nullopt;
  return waited.get();
}

TEST_F(WallClockTest, TheShimSetsTheWallClockAndNoOther) {
  const absl::Time wall = absl::Now();
  const absl::Time steady = Clock::Real()->Now();
  SetWallClock(kHour);
  EXPECT_GT(absl::Now() - wall, absl::Minutes(59));
  EXPECT_LT(Clock::Real()->Now() - steady, absl::Minutes(1));
}

TEST_F(WallClockTest, AWaitEndsInTimeWhenTheClockIsSetBack) {
  EXPECT_TRUE(WaitAcrossAStep(absl::Milliseconds(300), -kHour).has_value()) << "waits for an hour";
}

TEST_F(WallClockTest, AWaitDoesNotEndWhenTheClockIsSetForth) {
  const auto waited = WaitAcrossAStep(absl::Milliseconds(500), kHour);
  ASSERT_TRUE(waited.has_value());
  EXPECT_GE(*waited, std::chrono::milliseconds(500));
}

TEST_F(WallClockTest, AWaitWithoutEndIsNoWaitIntoThePast) {
  Mutex mu;
  CondVar changed;
  bool done = false;
  std::thread other([&] {
    MutexLock lock(&mu);
    done = true;
    changed.Signal();
  });
  {
    MutexLock lock(&mu);
    while (!done) EXPECT_FALSE(changed.WaitWithTimeout(&mu, absl::InfiniteDuration()));
  }
  other.join();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weir::TakeWallClock(argv);
  return RUN_ALL_TESTS();
}
