// What sync and async mean for the train loop of one trainer.
#include "trainer/loop/step_order.h"

#include <memory>

#include "gtest/gtest.h"

namespace weir {
namespace {

std::unique_ptr<StepOrder> OrderOf(bool sync) {
  return StepOrder::Of({.sync = sync}, v1::TrainingMode::default_instance());
}

TEST(StepOrderTest, InSyncNoTrainerEndsTheRunByItself) {
  const std::unique_ptr<StepOrder> order = OrderOf(/*sync=*/true);
  EXPECT_FALSE(order->EndsRun({.ended = true}));
  EXPECT_FALSE(order->EndsRun({.stopped = true, .examples = 1, .first_examples = 8}));
}

TEST(StepOrderTest, InAsyncATrainerEndsWithItsStreams) {
  const std::unique_ptr<StepOrder> order = OrderOf(/*sync=*/false);
  EXPECT_FALSE(order->EndsRun({}));  // part of a step has been read
  EXPECT_FALSE(order->EndsRun({.examples = 4, .first_examples = 8}));
  EXPECT_TRUE(order->EndsRun({.examples = 3, .first_examples = 8}));
  EXPECT_TRUE(order->EndsRun({.ended = true}));
  EXPECT_TRUE(order->EndsRun({.stopped = true, .examples = 8, .first_examples = 8}));
}

TEST(StepOrderTest, OnlyAPullThatWaitsForAVersionIsSwitched) {
  EXPECT_NE(OrderOf(/*sync=*/true)->MakeOverlapSwitch(), nullptr);
  EXPECT_EQ(OrderOf(/*sync=*/false)->MakeOverlapSwitch(), nullptr);
}

TEST(StepOrderTest, InSyncTheOutcomeIsThatOfAllTrainers) {
  const StepResult result = {.outcome = {.version = 7, .samples = 64, .first_samples = 64}, .examples = 16};
  const StepOutcome outcome = OrderOf(/*sync=*/true)->Outcome(result, /*version=*/6);
  EXPECT_EQ(outcome.version, 7);
  EXPECT_EQ(outcome.samples, 64);
}

}  // namespace
}  // namespace weir
