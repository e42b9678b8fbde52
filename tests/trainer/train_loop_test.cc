#include "trainer/loop/train_loop.h"

#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

TrainSummary Summary() { return {.steps = 3, .examples = 40, .seconds = 2, .train_loss = 0.25}; }

TEST(TrainSummaryTest, WithoutAnEvaluationTheLossIsThatOfTraining) {
  EXPECT_EQ(Summary().DoneLine(), "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=0.250000");
}

TEST(TrainSummaryTest, ARunOfNoTimeHasNoSpeed) {
  TrainSummary summary = Summary();
  summary.seconds = 0;
  EXPECT_EQ(summary.DoneLine(), "done steps=3 examples=40 seconds=0.00 examples_per_s=0 loss=0.250000");
}

TEST(TrainSummaryTest, AnEvaluationGivesTheLossAndTheMeasureOfItsKind) {
  TrainSummary summary = Summary();
  summary.eval = MetricResult{.samples = 8, .measures = {{"loss", 0.5}, {"auc", 0.75}}};
  EXPECT_EQ(summary.DoneLine(), "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=0.500000 auc=0.750000");
  summary.eval = MetricResult{.samples = 8, .measures = {{"loss", 0.5}, {"accuracy", 0.875}}};
  EXPECT_EQ(summary.DoneLine(),
            "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=0.500000 accuracy=0.875000");
  summary.eval = MetricResult{.samples = 8, .measures = {{"loss", 4}, {"rmse", 2}, {"mae", 1.5}}};
  EXPECT_EQ(summary.DoneLine(),
            "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=4.000000 rmse=2.000000 mae=1.500000");
}

TEST(TrainSummaryTest, AnAucThatIsUndefinedIsLeftOut) {
  TrainSummary summary = Summary();
  summary.eval =
      MetricResult{.samples = 8, .measures = {{"loss", 0.5}, {"auc", std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_EQ(summary.DoneLine(), "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=0.500000");
}

TEST(TrainSummaryTest, WhatWentOtherwiseStandsAtTheEnd) {
  TrainSummary summary = Summary();
  summary.skipped_steps = 1;
  summary.large_gradients = 3;
  summary.left_out = 5;
  summary.loss_scale = 1024;
  summary.stopped = true;
  EXPECT_EQ(summary.DoneLine(),
            "done steps=3 examples=40 seconds=2.00 examples_per_s=20 loss=0.250000 skipped_steps=1 "
            "large_gradients=3 left_out=5 loss_scale=1024 stopped=1");
}

}  // namespace
}  // namespace weir
