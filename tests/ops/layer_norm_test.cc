#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

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

OpTest LayerNorm(const Shape& x) {
  OpTest t("layer_norm", {AttrF("epsilon", 0.01)});
  t.Batched("X", x, Numbers(ElementCount(x), 1));
  t.Fixed("Scale", {x.back()}, Numbers(x.back(), 2)).Fixed("Shift", {x.back()}, Numbers(x.back(), 3));
  return t;
}

TEST(LayerNormTest, ARowHasMeanZeroAndVarianceOne) {
  // 1 3 5 7: mean 4, variance 5; with epsilon 4 the deviation is 3.
  OpTest t("layer_norm", {AttrF("epsilon", 4)});
  t.Batched("X", {2, 4}, {1, 3, 5, 7, 2, 2, 2, 2}).Fixed("Scale", {4}, {3, 3, 3, 6}).Fixed("Shift", {4}, {0, 0, 1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 4}, {-3, -1, 2, 7, 0, 0, 1, 1});
  t.ExpectOutput("Mean", {2, 1}, {4, 2}, 0);
  t.ExpectOutput("Inverse", {2, 1}, {1.0f / 3, 0.5f});
}

TEST(LayerNormTest, IsTheDefinitionInDouble) {
  for (const Shape& x : {Shape{3, 1}, Shape{5, 17}, Shape{2, 3, 64}, Shape{2, 2, 2, 33}}) {
    SCOPED_TRACE(ShapeString(x));
    OpTest t = LayerNorm(x);
    ASSERT_OK(t.Run());
    const size_t width = static_cast<size_t>(x.back());
    const std::vector<float> values = Numbers(ElementCount(x), 1);
    const std::vector<float> scale = Numbers(x.back(), 2), shift = Numbers(x.back(), 3);
    std::vector<float> want;
    for (size_t row = 0; row < values.size(); row += width) {
      double mean = 0, variance = 0;
      for (size_t i = 0; i < width; ++i) mean += values[row + i] / static_cast<double>(width);
      for (size_t i = 0; i < width; ++i) {
        variance += (values[row + i] - mean) * (values[row + i] - mean) / static_cast<double>(width);
      }
      for (size_t i = 0; i < width; ++i) {
        want.push_back(static_cast<float>((values[row + i] - mean) / std::sqrt(variance + 0.01) * scale[i] + shift[i]));
      }
    }
    t.ExpectOutput("Out", x, want, 1e-5);
  }
}

TEST(LayerNormTest, GradientGoesThroughMeanAndVariance) {
  for (const Shape& x : {Shape{2, 3}, Shape{2, 17}, Shape{2, 3, 5}, Shape{1, 2, 2, 4}}) {
    SCOPED_TRACE(ShapeString(x));
    OpTest t = LayerNorm(x);
    t.CheckGradient({.inputs = {"X", "Scale", "Shift"}});
    t.CheckBatchZero();
  }
}

TEST(LayerNormTest, ARowsBitsAreItsOwn) {
  OpTest all = LayerNorm({6, 21}), one = LayerNorm({1, 21});
  ASSERT_OK(all.Run());
  ASSERT_OK(one.Run());
  const std::vector<float> rows = all.Values("Out");
  EXPECT_EQ(std::vector<float>(rows.begin(), rows.begin() + 21), one.Values("Out"));
}

TEST(LayerNormTest, WhatDoesNotFitIsRefusedByName) {
  OpTest narrow("layer_norm");
  narrow.Batched("X", {2, 3}, Numbers(6, 1)).Fixed("Scale", {2}, {1, 1}).Fixed("Shift", {3}, {1, 1, 1});
  EXPECT_THAT(std::string(narrow.InferShapes().message()), HasSubstr("Scale must be [3], got [2]"));
  OpTest flat("layer_norm", {AttrF("epsilon", 0)});
  flat.Batched("X", {1, 1}, {1}).Fixed("Scale", {1}, {1}).Fixed("Shift", {1}, {1});
  EXPECT_THAT(std::string(flat.InferShapes().message()), HasSubstr("epsilon must be positive, got 0"));
}

TEST(LayerNormTest, OnlyItsOutputMayBeUsed) {
  OpTest t = LayerNorm({1, 2});
  ASSERT_OK(t.Run());
  EXPECT_THAT(std::string(t.Gradient("X", 0, {{"Mean", Tensor::Of<float>({1, 1}, {1})}}).status().message()),
              HasSubstr("only Out may be used"));
}

}  // namespace
}  // namespace weir
