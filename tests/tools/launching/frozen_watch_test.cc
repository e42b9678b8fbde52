#include "tools/launching/frozen_watch.h"

#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr FrozenWatch::State kRuns = FrozenWatch::State::kRuns;
constexpr FrozenWatch::State kStopped = FrozenWatch::State::kStopped;
constexpr FrozenWatch::State kEnded = FrozenWatch::State::kEnded;

// Twenty seconds is the limit, and an hour for a job that is paused. Time passes second by second, unless it is let
// pass asleep.
class FrozenWatchTest : public ::testing::Test {
 protected:
  void Pass(int seconds, const std::vector<FrozenWatch::State>& states) {
    for (int i = 0; i < seconds; ++i) {
      now_ += absl::Seconds(1);
      watch_.Look(states, now_);
    }
  }
  void PassAsleep(int seconds) { now_ += absl::Seconds(seconds); }
  std::vector<size_t> Frozen() { return watch_.TakeFrozen(now_); }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  FrozenWatch watch_{{.limit = absl::Seconds(20), .pause_limit = absl::Hours(1)}};
};

TEST_F(FrozenWatchTest, AProcessThatIsStoppedForTheLimitIsFrozenOnce) {
  Pass(100, {kRuns, kRuns});
  Pass(20, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  Pass(1, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), ElementsAre(1));
  EXPECT_THAT(Frozen(), IsEmpty());
  Pass(100, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  EXPECT_EQ(watch_.next(), absl::InfiniteFuture());
}

TEST_F(FrozenWatchTest, OneThatIsContinuedBeginsAnew) {
  Pass(15, {kRuns, kStopped});
  Pass(1, {kRuns, kRuns});
  EXPECT_EQ(watch_.next(), absl::InfiniteFuture());
  Pass(15, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  EXPECT_THAT(watch_.Stopped(), ElementsAre(1));
}

TEST_F(FrozenWatchTest, ProcessesAreAddedWhileTheJobStarts) {
  Pass(1, {});
  Pass(1, {kRuns});
  Pass(21, {kRuns, kRuns, kStopped});
  EXPECT_THAT(Frozen(), ElementsAre(2));
}

TEST_F(FrozenWatchTest, AJobThatIsPausedMayBeContinued) {
  Pass(5, {kRuns, kStopped});
  Pass(1000, {kStopped, kStopped});
  EXPECT_TRUE(watch_.paused());
  EXPECT_THAT(Frozen(), IsEmpty());
  // One after the other.
  Pass(1, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  Pass(1, {kRuns, kRuns});
  EXPECT_THAT(Frozen(), IsEmpty());
}

TEST_F(FrozenWatchTest, OneThatIsNotContinuedWithTheOthersIsFrozen) {
  Pass(1000, {kStopped, kStopped});
  Pass(21, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), ElementsAre(1));
}

TEST_F(FrozenWatchTest, APauseHasALimit) {
  Pass(3600, {kStopped, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  Pass(1, {kStopped, kStopped});
  EXPECT_THAT(Frozen(), ElementsAre(0, 1));
}

TEST_F(FrozenWatchTest, TheLastOneOfAJobIsNotPaused) {
  Pass(21, {kEnded, kStopped});
  EXPECT_FALSE(watch_.paused());
  EXPECT_THAT(Frozen(), ElementsAre(1));
}

TEST_F(FrozenWatchTest, APartOfAJobIsNeverPaused) {
  FrozenWatch part({.limit = absl::Seconds(20), .pause_limit = absl::Hours(1), .whole_job = false});
  for (int i = 0; i <= 20; ++i) part.Look({kStopped}, now_ + absl::Seconds(i));
  EXPECT_THAT(part.TakeFrozen(now_ + absl::Seconds(20)), ElementsAre(0));
}

// As with SIGSTOP for all processes of a machine, this one included.
TEST_F(FrozenWatchTest, TimeAsleepDoesNotCount) {
  Pass(5, {kRuns, kStopped});
  PassAsleep(1000);
  Pass(20, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), IsEmpty());
  Pass(1, {kRuns, kStopped});
  EXPECT_THAT(Frozen(), ElementsAre(1));
}

TEST_F(FrozenWatchTest, TheNextLookIsInTimeToTellSleepFromTheLimit) {
  Pass(1, {kRuns, kStopped});
  EXPECT_EQ(watch_.next(), now_ + absl::Seconds(5));
  Pass(18, {kRuns, kStopped});
  EXPECT_EQ(watch_.next(), now_ + absl::Seconds(2));
}

}  // namespace
}  // namespace weir
