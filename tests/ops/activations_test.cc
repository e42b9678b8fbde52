#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/activation_math.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReluTest, KeepsPositiveNumbers) {
  OpTest t("relu");
  t.Batched("X", {2, 2}, {-1, 0, 0.5, 2});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {0, 0, 0.5, 2}, 0);
}

TEST(ReluTest, NanIsNotHidden) {
  OpTest t("relu");
  t.Batched("X", {1}, {std::numeric_limits<float>::quiet_NaN()});
  ASSERT_OK(t.Run());
  EXPECT_TRUE(std::isnan(t.Values("Out")[0]));
}

TEST(ReluTest, GradientPassesWhereTheOutputIsPositive) {
  OpTest t("relu");
  t.Batched("X", {1, 3}, {-1, 0, 2});
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> dx = t.Gradient("X", 0, {{"Out", Tensor::Of<float>({1, 3}, {5, 6, 7})}});
  ASSERT_OK(dx.status());
  EXPECT_THAT(std::get<Tensor>(*dx).span<float>(), ElementsAre(0, 0, 7));
}

TEST(SigmoidTest, ValuesByHand) {
  OpTest t("sigmoid");
  t.Batched("X", {1, 4}, {0, 1, -1, 200});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 4}, {0.5, 0.7310586, 0.2689414, 1});
}

TEST(TanhTest, ValuesByHand) {
  OpTest t("tanh");
  t.Batched("X", {1, 4}, {0, 0.5, -1, 30});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 4}, {0, 0.4621172, -0.7615942, 1});
}

TEST(SquareTest, ValuesByHand) {
  OpTest t("square");
  t.Batched("X", {1, 3}, {0, -3, 0.5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 3}, {0, 9, 0.25}, 0);
}

class EveryActivation : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryActivation, GradientIsThatOfTheFunction) {
  OpTest t(GetParam());
  t.Batched("X", {3, 2}, {-2, -0.7, -0.1, 0.2, 0.9, 3});
  t.CheckGradient({.inputs = {"X"}});
}

TEST_P(EveryActivation, TakesNoExamples) {
  OpTest t(GetParam());
  t.Batched("X", {2, 2}, {1, 2, 3, 4});
  t.CheckBatchZero();
}

TEST_P(EveryActivation, RefusesIntegers) {
  OpTest t(GetParam());
  t.Batched("X", Tensor::Of<int64_t>({1, 2}, {1, 2}));
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr(GetParam() + ": X must be FLOAT32, got INT64 (variable X_0)"));
}

// 19 elements: a vector body and a tail.
TEST_P(EveryActivation, VectorsAndScalarsGiveTheSameBits) {
  std::vector<float> values;
  for (int i = 0; i < 19; ++i) values.push_back(0.37f * static_cast<float>(i - 9));
  OpTest together(GetParam());
  together.Batched("X", {19}, values);
  ASSERT_OK(together.Run());
  for (int i = 0; i < 19; ++i) {
    OpTest alone(GetParam());
    alone.Batched("X", {1}, {values[i]});
    ASSERT_OK(alone.Run());
    EXPECT_EQ(FloatBits(alone.Values("Out")[0]), FloatBits(together.Values("Out")[i])) << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryActivation, ::testing::Values("relu", "sigmoid", "tanh", "exp", "square"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
