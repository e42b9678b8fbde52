#include "trainer/loop/overlap_switch.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kTrial = 2 * OverlapSwitch::kTurns * OverlapSwitch::kTurn;

// Steps that take `with` when their successor's rows are pulled ahead, else `without`.
class Steps {
 public:
  Steps(absl::Duration with, absl::Duration without) : with_(with), without_(without) {
    overlap.AsksForStep(now_);
    overlap.StepBegins(now_);
  }

  void Run(int steps, absl::Duration longer_once = absl::ZeroDuration()) {
    for (int i = 0; i < steps; ++i) {
      ahead += overlap.on() ? 1 : 0;
      // A third of it after the border, waiting for rows.
      const absl::Duration step = (overlap.on() ? with_ : without_) + (i == 3 ? longer_once : absl::ZeroDuration());
      now_ += step * 2 / 3;
      overlap.StepEnds(now_);
      if (border_every > 0 && i % border_every == 0) now_ += absl::Seconds(1);
      overlap.AsksForStep(now_);
      now_ += step / 3;
      overlap.StepBegins(now_);
      if (!overlap.news().empty()) news = overlap.news();
    }
  }
  void Set(absl::Duration with, absl::Duration without) {
    with_ = with;
    without_ = without;
  }

  OverlapSwitch overlap;
  int ahead = 0;
  int border_every = 0;  // steps from one long border to the next; 0: none
  std::string news;

 private:
  absl::Duration with_, without_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST(OverlapSwitchTest, KeepsTheWayInWhichStepsTakeLess) {
  for (const bool faster : {true, false}) {
    Steps steps(absl::Milliseconds(faster ? 9 : 11), absl::Milliseconds(10));
    steps.Run(kTrial);
    EXPECT_EQ(steps.ahead, kTrial / 2);  // both ways as often
    EXPECT_EQ(steps.overlap.on(), faster);
    EXPECT_THAT(steps.news, HasSubstr(faster ? "takes 9.00 ms with" : "takes 11.00 ms with"));
    EXPECT_THAT(steps.news, HasSubstr(", 10.00 ms with a pull that waits"));
    EXPECT_THAT(steps.news, HasSubstr(faster ? "the former" : "the latter"));
    steps.ahead = 0;
    steps.Run(OverlapSwitch::kStay);
    EXPECT_NEAR(steps.ahead, faster ? OverlapSwitch::kStay : 0, 1);
  }
}

TEST(OverlapSwitchTest, TriesAgainWhenTheWorldMayHaveChanged) {
  Steps steps(absl::Milliseconds(9), absl::Milliseconds(10));
  steps.Run(kTrial);
  EXPECT_TRUE(steps.overlap.on());
  steps.Set(absl::Milliseconds(12), absl::Milliseconds(10));
  steps.Run(OverlapSwitch::kStay + kTrial);
  EXPECT_FALSE(steps.overlap.on());
  steps.Set(absl::Milliseconds(8), absl::Milliseconds(10));
  steps.Run(OverlapSwitch::kStay + kTrial);
  EXPECT_TRUE(steps.overlap.on());
}

TEST(OverlapSwitchTest, EvaluationsAndCheckpointsDecideNothing) {
  for (const int every : {1, 10, 12, 24}) {
    for (const bool faster : {true, false}) {
      Steps steps(absl::Milliseconds(faster ? 9 : 12), absl::Milliseconds(10));
      steps.border_every = every;
      steps.Run(kTrial);
      EXPECT_EQ(steps.overlap.on(), faster) << every;
    }
  }
}

TEST(OverlapSwitchTest, OneLongStepDecidesNothing) {
  Steps steps(absl::Milliseconds(9), absl::Milliseconds(10));
  steps.Run(kTrial, /*longer_once=*/absl::Seconds(30));
  EXPECT_TRUE(steps.overlap.on());
}

}  // namespace
}  // namespace weir
