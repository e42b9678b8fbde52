#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(SoftmaxTest, ValuesByHand) {
  OpTest t("softmax");
  // e^ln3 = 3: 1 / 4 and 3 / 4.
  t.Batched("X", {2, 2}, {0, 1.0986123, 5, 5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {0.25, 0.75, 0.5, 0.5});
}

TEST(SoftmaxTest, LargeNumbersDoNotOverflow) {
  OpTest t("softmax");
  t.Batched("X", {1, 3}, {1000, 1000, -1000});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 3}, {0.5, 0.5, 0});
}

TEST(SoftmaxTest, GradientIsThatOfTheFunction) {
  OpTest t("softmax");
  t.Batched("X", {2, 3}, {0.1, -1, 0.7, 2, 0, -0.5});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(SoftmaxTest, TakesNoExamples) {
  OpTest t("softmax");
  t.Batched("X", {1, 3}, {1, 2, 3});
  t.CheckBatchZero();
}

TEST(SoftmaxTest, NeedsAMatrix) {
  OpTest t("softmax");
  t.Batched("X", {1, 1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("softmax: X must have 2 dims, got [-1, 1, 2]"));
}

}  // namespace
}  // namespace weir
