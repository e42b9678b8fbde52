#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PreluTest, ValuesBelowZeroAreMultipliedByTheirSlope) {
  OpTest t("prelu");
  t.Batched("X", {2, 3}, {1, -2, 0, -4, 5, -6}).Fixed("Slope", {3}, {0.5f, 0.25f, 2});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {1, -0.5f, 0, -2, 5, -12}, 0);
  const Tensor dout = Tensor::Of<float>({2, 3}, {1, 10, 100, 1000, 10000, 100000});
  const auto slope = t.Gradient("Slope", 0, {{"Out", dout}});
  ASSERT_OK(slope.status());
  EXPECT_THAT(std::get<Tensor>(*slope).span<float>(), ElementsAre(-4000, -20, -600000));
}

TEST(PreluTest, OrByOneForAll) {
  OpTest t("prelu");
  t.Batched("X", {2, 2, 2}, {1, -2, 3, -4, 5, -6, 7, -8}).Fixed("Slope", {1}, {0.5f});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 2}, {1, -1, 3, -2, 5, -3, 7, -4}, 0);
  const Tensor dout = Tensor::Of<float>({2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1});
  const auto slope = t.Gradient("Slope", 0, {{"Out", dout}});
  ASSERT_OK(slope.status());
  EXPECT_THAT(std::get<Tensor>(*slope).span<float>(), ElementsAre(-20));
}

TEST(PreluTest, GradientAgreesWithDifferences) {
  for (const int64_t slopes : {1, 19}) {
    std::vector<float> x, slope;
    for (int64_t i = 0; i < 2 * 3 * 19; ++i) x.push_back(0.1f * static_cast<float>(i * 7 % 23) - 1.15f);
    for (int64_t i = 0; i < slopes; ++i) slope.push_back(0.05f * static_cast<float>(i) + 0.1f);
    OpTest t("prelu");
    t.Batched("X", {2, 3, 19}, x).Fixed("Slope", {slopes}, slope);
    t.CheckGradient({.inputs = {"X", "Slope"}});
    t.CheckBatchZero();
  }
}

TEST(PreluTest, SlopesThatDoNotFitAreNamed) {
  OpTest t("prelu");
  t.Batched("X", {1, 3}, {1, 2, 3}).Fixed("Slope", {2}, {1, 1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Slope must be [3], got [2]"));
}

}  // namespace
}  // namespace weir
