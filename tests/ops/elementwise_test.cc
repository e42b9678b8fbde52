#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

OpTest Elementwise(const std::string& op, int64_t axis = -1) {
  return OpTest("elementwise_" + op, {AttrI("axis", axis)});
}

TEST(ElementwiseTest, TheFourOperationsByHand) {
  const std::vector<std::pair<std::string, std::vector<float>>> expected = {
      {"add", {5, 4, 2}}, {"sub", {3, 0, -6}}, {"mul", {4, 4, -8}}, {"div", {4, 1, -0.5}}};
  for (const auto& [op, values] : expected) {
    OpTest t = Elementwise(op);
    t.Batched("X", {3, 1}, {4, 2, -2}).Batched("Y", {3, 1}, {1, 2, 4});
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {3, 1}, values, 0);
  }
}

TEST(ElementwiseTest, TrailingDimsAreRepeatedForEachExample) {
  OpTest t = Elementwise("add");
  t.Batched("X", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}).Fixed("Y", {2}, {10, 20});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 2}, {11, 22, 13, 24, 15, 26, 17, 28}, 0);
}

TEST(ElementwiseTest, AxisSaysWhereYStands) {
  OpTest t = Elementwise("mul", 1);
  t.Batched("X", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}).Fixed("Y", {2}, {1, 10});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 2}, {1, 2, 30, 40, 5, 6, 70, 80}, 0);
}

TEST(ElementwiseTest, OneNumberPerExampleIsRepeatedAlongTheRow) {
  OpTest t = Elementwise("mul");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Batched("Y", {2, 1}, {2, -1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {2, 4, 6, -4, -5, -6}, 0);
}

TEST(ElementwiseTest, AScalarFitsEverything) {
  OpTest t = Elementwise("sub");
  t.Batched("X", {2, 1}, {3, 4}).Fixed("Y", {}, {1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {2, 3}, 0);
}

TEST(ElementwiseTest, GradientOfARepeatedNumberIsTheSum) {
  OpTest t = Elementwise("add");
  t.Batched("X", {2, 2}, {0, 0, 0, 0}).Fixed("Y", {2}, {0, 0});
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> dy = t.Gradient("Y", 0, {{"Out", Tensor::Of<float>({2, 2}, {1, 2, 3, 4})}});
  ASSERT_OK(dy.status());
  EXPECT_THAT(std::get<Tensor>(*dy).span<float>(), ::testing::ElementsAre(4, 6));
}

class EveryElementwise : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryElementwise, GradientWithEqualShapes) {
  OpTest t = Elementwise(GetParam());
  t.Batched("X", {2, 2}, {1, -2, 0.5, 3}).Batched("Y", {2, 2}, {2, 1.5, -0.7, 1});
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST_P(EveryElementwise, GradientWithTrailingDims) {
  OpTest t = Elementwise(GetParam());
  t.Batched("X", {2, 3}, {1, -2, 0.5, 3, 1.2, -0.4}).Fixed("Y", {3}, {2, 1.5, -0.7});
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST_P(EveryElementwise, GradientWithAMiddleDim) {
  OpTest t = Elementwise(GetParam(), 1);
  t.Batched("X", {2, 2, 2}, {1, -2, 0.5, 3, 1.2, -0.4, 0.8, 2}).Fixed("Y", {2}, {2, -1.5});
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST_P(EveryElementwise, GradientWithOneNumberPerExample) {
  OpTest t = Elementwise(GetParam());
  t.Batched("X", {2, 3}, {1, -2, 0.5, 3, 1.2, -0.4}).Batched("Y", {2, 1}, {2, -1.5});
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST_P(EveryElementwise, TakesNoExamples) {
  OpTest t = Elementwise(GetParam());
  t.Batched("X", {2, 2}, {1, -2, 0.5, 3}).Fixed("Y", {2}, {2, 1.5});
  t.CheckBatchZero();
}

INSTANTIATE_TEST_SUITE_P(All, EveryElementwise, ::testing::Values("add", "sub", "mul", "div"),
                         [](const auto& info) { return info.param; });

TEST(ElementwiseTest, MismatchNamesBothShapes) {
  OpTest t = Elementwise("add");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Fixed("Y", {2}, {1, 2});
  EXPECT_THAT(
      std::string(t.InferShapes().message()),
      HasSubstr("elementwise_add: X has dims [-1, 3], Y [2] from axis 1 on; they must be equal there, or 1 in Y"));
}

TEST(ElementwiseTest, YMayNotBeTheLargerOne) {
  OpTest t = Elementwise("add");
  t.Batched("X", {2, 1}, {1, 2}).Batched("Y", {2, 1, 1}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Y must be the smaller one"));
}

TEST(ElementwiseTest, AFixedSizeDoesNotStandForTheBatch) {
  OpTest t = Elementwise("add");
  t.Batched("X", {2, 1}, {1, 2}).Fixed("Y", {2, 1}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X has dims [-1, 1], Y [2, 1]"));
}

}  // namespace
}  // namespace weir
