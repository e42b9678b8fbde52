#include "trainer/session/loss_scaler.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

v1::Train Settings(double initial, int64_t growth_every, double most) {
  v1::Train train;
  train.mutable_loss_scaling()->set_initial(initial);
  train.mutable_loss_scaling()->set_growth_every(growth_every);
  train.mutable_loss_scaling()->set_most(most);
  return train;
}

TEST(LossScalerTest, WithoutItTheScaleIsOneAndStays) {
  LossScaler scaler{v1::Train()};
  EXPECT_FALSE(scaler.on());
  for (const bool skipped : {false, true, false}) {
    scaler.StepDone(skipped);
    EXPECT_EQ(scaler.scale(), 1);
  }
  v1::TrainerState state;
  scaler.Save(&state);
  EXPECT_FALSE(state.has_loss_scale());
  state.mutable_loss_scale()->set_scale(8);
  scaler.Restore(state);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScalerTest, DefaultsAreThoseOfTheJob) {
  v1::Train train;
  train.mutable_loss_scaling();
  LossScaler scaler(train);
  EXPECT_TRUE(scaler.on());
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.StepDone(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.StepDone(false);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScalerTest, FallsWithEachSkippedStepAndGrowsAfterGoodOnesInARow) {
  LossScaler scaler(Settings(16, 3, 64));
  std::vector<float> scales;
  for (const bool skipped : {true, true, false, false, true, false, false, false, false, false}) {
    scaler.StepDone(skipped);
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<float>{8, 4, 4, 4, 2, 2, 2, 4, 4, 4}));
}

TEST(LossScalerTest, NeverBelowOneNorAboveTheMost) {
  LossScaler scaler(Settings(2, 1, 8));
  for (int i = 0; i < 5; ++i) scaler.StepDone(true);
  EXPECT_EQ(scaler.scale(), 1);
  for (int i = 0; i < 9; ++i) scaler.StepDone(false);
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScalerTest, GoesOnFromItsState) {
  LossScaler whole(Settings(64, 4, 1024)), first(Settings(64, 4, 1024)), second(Settings(64, 4, 1024));
  const std::vector<bool> skipped = {true, false, false, false, true, false, false, false, false, false, true, false};
  for (size_t i = 0; i < skipped.size(); ++i) {
    whole.StepDone(skipped[i]);
    if (i < 7) first.StepDone(skipped[i]);
  }
  v1::TrainerState state, at_the_end;
  first.Save(&state);
  EXPECT_EQ(state.loss_scale().good_steps(), 2);
  second.Restore(state);
  for (size_t i = 7; i < skipped.size(); ++i) second.StepDone(skipped[i]);
  EXPECT_EQ(second.scale(), whole.scale());
  second.Save(&state);
  whole.Save(&at_the_end);
  EXPECT_EQ(state.loss_scale().good_steps(), at_the_end.loss_scale().good_steps());
}

TEST(LossScalerTest, AStateOfOtherSettingsIsBroughtIntoThese) {
  LossScaler scaler(Settings(64, 4, 256));
  v1::TrainerState state;
  scaler.Restore(state);
  EXPECT_EQ(scaler.scale(), 64) << "a checkpoint without one";
  state.mutable_loss_scale()->set_scale(65536);
  scaler.Restore(state);
  EXPECT_EQ(scaler.scale(), 256);
  state.mutable_loss_scale()->set_scale(100);
  scaler.Restore(state);
  EXPECT_EQ(scaler.scale(), 64);
  for (const double no_scale : {0.0, -4.0, std::numeric_limits<double>::quiet_NaN()}) {
    state.mutable_loss_scale()->set_scale(no_scale);
    scaler.Restore(state);
    EXPECT_EQ(scaler.scale(), 1);
  }
}

}  // namespace
}  // namespace weir
