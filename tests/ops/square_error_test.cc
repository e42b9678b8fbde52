#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(SquareErrorTest, ValuesByHand) {
  OpTest t("square_error");
  t.Batched("X", {2, 1}, {3, -1}).Batched("Label", {2, 1}, {1, 1}).Batched("Weight", {2, 1}, {1, 0.5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {4, 2}, 0);
}

TEST(SquareErrorTest, GradientIsThatOfTheLoss) {
  for (const bool weighted : {false, true}) {
    OpTest t("square_error");
    t.Batched("X", {2, 1}, {3, -1}).Batched("Label", {2, 1}, {1, 1});
    if (weighted) t.Batched("Weight", {2, 1}, {2, 0.5});
    t.CheckGradient({.inputs = {"X"}});
  }
}

TEST(SquareErrorTest, TakesNoExamples) {
  OpTest t("square_error");
  t.Batched("X", {1, 1}, {3}).Batched("Label", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST(SquareErrorTest, ShapesAreNamed) {
  OpTest t("square_error");
  t.Batched("X", {1, 1}, {3}).Batched("Label", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("square_error: Label must be [B, 1]"));
}

}  // namespace
}  // namespace weir
