#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> values;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16 & 255) / 64.0f - 2.0f);
  }
  return values;
}

OpTest DiceOf(const Shape& x, const std::vector<float>& values) {
  OpTest t("dice", {AttrF("epsilon", 0.01), AttrF("momentum", 0.5)});
  t.Batched("X", x, values).Fixed("Slope", {x.back()}, Numbers(x.back(), 2));
  t.Fixed("Mean", {x.back()}, Numbers(x.back(), 4))
      .Fixed("Variance", {x.back()}, std::vector<float>(static_cast<size_t>(x.back()), 2.25f));
  return t;
}

TEST(DiceTest, WeighsAValueByWhereItStandsInItsBatch) {
  // Mean 4, variance 5, deviation 3; values 1 and 7 are one deviation from the mean.
  OpTest t("dice", {AttrF("epsilon", 4)});
  t.Batched("X", {4, 1}, {1, 3, 5, 7}).Fixed("Slope", {1}, {-1}).Fixed("Mean", {1}, {9}).Fixed("Variance", {1}, {9});
  ASSERT_OK(t.Run());
  t.ExpectOutput("BatchMean", {1}, {4}, 0);
  t.ExpectOutput("BatchVariance", {1}, {5}, 0);
  const auto p = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<float> want;
  for (const double x : {1, 3, 5, 7}) {
    const double own = p((x - 4) / 3);
    want.push_back(static_cast<float>(own * x - (1 - own) * x));
  }
  t.ExpectOutput("Out", {4, 1}, want, 1e-6);
}

TEST(DiceTest, OutsideOfTrainingItTakesTheRunningValues) {
  OpTest t("dice", {AttrF("epsilon", 0.75)});
  t.Batched("X", {1, 2}, {5, 6}).Fixed("Slope", {2}, {0, 0});
  t.Fixed("Mean", {2}, {2, 6}).Fixed("Variance", {2}, {8.25f, 3.25f});
  t.step().training = false;
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2}, {5 / (1 + std::exp(-1.0f)), 3});
}

TEST(DiceTest, IsTheDefinitionInDouble) {
  for (const Shape& x : {Shape{2, 1}, Shape{17, 3}, Shape{64, 70}, Shape{5, 7, 18}}) {
    SCOPED_TRACE(ShapeString(x));
    const std::vector<float> values = Numbers(ElementCount(x), 1), slope = Numbers(x.back(), 2);
    OpTest t = DiceOf(x, values);
    ASSERT_OK(t.Run());
    const size_t width = slope.size();
    const double rows = static_cast<double>(values.size() / width);
    std::vector<float> want(values.size());
    for (size_t c = 0; c < width; ++c) {
      double mean = 0, variance = 0;
      for (size_t i = c; i < values.size(); i += width) mean += values[i] / rows;
      for (size_t i = c; i < values.size(); i += width) variance += (values[i] - mean) * (values[i] - mean) / rows;
      for (size_t i = c; i < values.size(); i += width) {
        const double p = 1 / (1 + std::exp(-(values[i] - mean) / std::sqrt(variance + 0.01)));
        want[i] = static_cast<float>(p * values[i] + (1 - p) * slope[c] * values[i]);
      }
    }
    t.ExpectOutput("Out", x, want, 1e-5);
  }
}

TEST(DiceTest, GradientGoesThroughMeanAndVariance) {
  for (const Shape& x : {Shape{4, 3}, Shape{5, 18}, Shape{2, 3, 2}}) {
    SCOPED_TRACE(ShapeString(x));
    OpTest t = DiceOf(x, Numbers(ElementCount(x), 5));
    t.CheckGradient({.inputs = {"X", "Slope"}});
    t.CheckBatchZero();
  }
}

TEST(DiceTest, GradientsOfRunningAveragesAreWhatWasMeasuredTimesTheExamples) {
  // Mean 4, variance 5 of 1 3 5 7; two examples.
  OpTest t("dice");
  t.Batched("X", {2, 2, 1}, {1, 3, 5, 7}).Fixed("Slope", {1}, {1}).Fixed("Mean", {1}, {9}).Fixed("Variance", {1}, {9});
  ASSERT_OK(t.Run());
  const Tensor dout = Tensor::Of<float>({2, 2, 1}, std::vector<float>{1, 2, 3, 4});
  const auto mean = t.Gradient("Mean", 0, {{"Out", dout}});
  const auto variance = t.Gradient("Variance", 0, {{"Out", dout}});
  ASSERT_TRUE(mean.ok() && variance.ok()) << mean.status() << variance.status();
  EXPECT_THAT(std::get<Tensor>(*mean).span<float>(), ElementsAre(8));
  EXPECT_THAT(std::get<Tensor>(*variance).span<float>(), ElementsAre(10));
}

TEST(DiceTest, WhatDoesNotFitIsRefusedByName) {
  OpTest wrong("dice");
  wrong.Batched("X", {2, 3}, Numbers(6, 1)).Fixed("Slope", {3}, {1, 1, 1});
  wrong.Fixed("Mean", {2}, {1, 1}).Fixed("Variance", {3}, {1, 1, 1});
  EXPECT_THAT(std::string(wrong.InferShapes().message()), HasSubstr("Mean must be [3], got [2]"));
  for (const auto& [attr, text] : {std::pair(AttrF("epsilon", 0), "epsilon must be positive, got 0"),
                                   std::pair(AttrF("momentum", 1), "momentum must be in [0, 1), got 1")}) {
    OpTest t("dice", {attr});
    t.Batched("X", {1, 1}, {1}).Fixed("Slope", {1}, {1}).Fixed("Mean", {1}, {1}).Fixed("Variance", {1}, {1});
    EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace weir
