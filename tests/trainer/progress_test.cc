#include "trainer/progress/progress.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/printed_lines.h"

namespace weir {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  std::string Text() { return out_.Text(); }
  static std::vector<Figure> Auc() { return {{.name = "auc", .value = 0.75}}; }
  static std::vector<Figure> NoAuc() { return {{.name = "auc", .value = std::numeric_limits<double>::quiet_NaN()}}; }

  PrintedLines out_;
  FakeClock clock_;
};

TEST_F(ProgressTest, ALineIsPrintedWhenTheIntervalHasPassed) {
  Progress progress(out_.file(), /*live=*/false, absl::Seconds(5), &clock_);
  clock_.Advance(absl::Seconds(2));
  progress.Step({.step = 1, .examples = 100, .loss_sum = 60, .loss_examples = 100}, Auc);
  EXPECT_EQ(Text(), "");
  clock_.Advance(absl::Seconds(3));
  progress.Step({.step = 2, .examples = 100, .loss_sum = 40, .loss_examples = 100}, Auc);
  EXPECT_EQ(Text(), "step=2 examples=200 examples_per_s=40 loss=0.500000 auc=0.750000\n");
}

TEST_F(ProgressTest, AnIntervalForgetsTheOneBefore) {
  Progress progress(out_.file(), false, absl::Seconds(5), &clock_);
  clock_.Advance(absl::Seconds(5));
  progress.Step({.step = 1, .examples = 100, .loss_sum = 100, .loss_examples = 100}, NoAuc);
  clock_.Advance(absl::Seconds(10));
  progress.Step({.step = 2, .examples = 100, .loss_sum = 20, .loss_examples = 100}, NoAuc);
  EXPECT_EQ(Text(),
            "step=1 examples=100 examples_per_s=20 loss=1.000000\n"
            "step=2 examples=200 examples_per_s=10 loss=0.200000\n");
  EXPECT_DOUBLE_EQ(progress.mean_loss(), 0.6);
}

TEST_F(ProgressTest, EveryFigureIsSaid) {
  Progress progress(out_.file(), false, absl::Seconds(5), &clock_);
  clock_.Advance(absl::Seconds(5));
  progress.Step({.step = 1, .examples = 100}, [] {
    return std::vector<Figure>{{.name = "auc", .value = 0.5}, {.name = "calibration", .value = 1.25}};
  });
  EXPECT_EQ(Text(), "step=1 examples=100 examples_per_s=20 loss=0.000000 auc=0.500000 calibration=1.250000\n");
}

TEST_F(ProgressTest, SkippedStepsAndTheLossScaleAreSaid) {
  Progress progress(out_.file(), false, absl::Seconds(5), &clock_);
  clock_.Advance(absl::Seconds(5));
  progress.Step({.step = 1, .examples = 100, .loss_sum = 100, .loss_examples = 100, .loss_scale = 65536}, NoAuc);
  clock_.Advance(absl::Seconds(5));
  progress.Step({.step = 2, .examples = 100, .skipped_steps = 1, .loss_scale = 32768}, NoAuc);
  EXPECT_EQ(Text(),
            "step=1 examples=100 examples_per_s=20 loss=1.000000 loss_scale=65536\n"
            "step=2 examples=200 examples_per_s=20 loss=0.000000 skipped_steps=1 loss_scale=32768\n");
}

TEST_F(ProgressTest, TimeLeftCountsFromWhereThisRunBegan) {
  Progress progress(out_.file(), false, absl::Seconds(5), &clock_);
  // A resumed run begins at 40 %; a tenth of the whole took 5 s, half of it is left.
  progress.Step({.step = 40, .fraction = 0.4}, NoAuc);
  clock_.Advance(absl::Seconds(5));
  progress.Step({.step = 50, .fraction = 0.5}, NoAuc);
  EXPECT_NE(Text().find("left_s=25"), std::string::npos) << Text();
}

TEST_F(ProgressTest, ALiveLineIsRewrittenAndOtherLinesStandAboveIt) {
  Progress progress(out_.file(), /*live=*/true, absl::Seconds(1), &clock_);
  clock_.Advance(absl::Seconds(1));
  progress.Step({.step = 1, .examples = 10, .loss_sum = 5, .loss_examples = 10}, Auc);
  progress.Say("eval step=1");
  EXPECT_EQ(Text(), "\rstep 1  10 examples/s  loss 0.5000  auc 0.7500\033[K\r\033[Keval step=1\n");
}

TEST(ShortDurationTest, PicksItsUnits) {
  EXPECT_EQ(ShortDuration(absl::Seconds(12)), "12s");
  EXPECT_EQ(ShortDuration(absl::Seconds(187)), "3m07s");
  EXPECT_EQ(ShortDuration(absl::Minutes(62)), "1h02m");
  EXPECT_EQ(ShortDuration(absl::Seconds(-1)), "0s");
}

}  // namespace
}  // namespace weir
