#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(LearnedWeightTest, WeighsALossByItsVariance) {
  OpTest t("learned_weight");
  t.Batched("X", {3, 1}, {1, 0, 2.5f}).Fixed("LogVariance", {1}, {0.7f});
  ASSERT_OK(t.Run());
  const float weight = std::exp(-0.7f);
  t.ExpectOutput("Out", {3, 1}, {weight + 0.35f, 0.35f, 2.5f * weight + 0.35f});
  t.CheckGradient({.inputs = {"X", "LogVariance"}});
  t.CheckBatchZero();
}

TEST(LearnedWeightTest, AWeightOfOneAtFirst) {
  OpTest t("learned_weight");
  t.Batched("X", {2, 1}, {1.25f, 3}).Fixed("LogVariance", {1}, {0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {1.25f, 3}, 0);
}

// The sum over the samples, of more than one round of partial sums.
TEST(LearnedWeightTest, TheVarianceFallsWhereLossesAreSmall) {
  std::vector<float> x(37);
  Tensor dout(v1::FLOAT32, {37, 1});
  double wanted = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.1f * static_cast<float>(i % 5);
    dout.data<float>()[i] = 2;
    wanted += 2 * (0.5 - std::exp(0.3) * static_cast<double>(x[i]));
  }
  OpTest t("learned_weight");
  t.Batched("X", {37, 1}, x).Fixed("LogVariance", {1}, {-0.3f});
  ASSERT_OK(t.Run());
  const absl::StatusOr<Variable> gradient = t.Gradient("LogVariance", 0, {{"Out", dout}});
  ASSERT_OK(gradient.status());
  EXPECT_NEAR(std::get<Tensor>(*gradient).data<float>()[0], wanted, 1e-4);
}

TEST(LearnedWeightTest, ShapesAreNamed) {
  OpTest wide("learned_weight");
  wide.Batched("X", {1, 2}, {1, 2}).Fixed("LogVariance", {1}, {0});
  EXPECT_THAT(std::string(wide.InferShapes().message()), HasSubstr("X must be [B, 1]"));
  OpTest two("learned_weight");
  two.Batched("X", {1, 1}, {1}).Fixed("LogVariance", {2}, {0, 0});
  EXPECT_THAT(std::string(two.InferShapes().message()), HasSubstr("LogVariance must be [1], got [2]"));
}

}  // namespace
}  // namespace weir
