#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, float step) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(step * static_cast<float>(i * 7 % 11 - 5));
  return values;
}

TEST(DotTest, MultipliesAVectorWithEachOfSeveral) {
  OpTest t("dot");
  t.Batched("X", {2, 3}, {1, 2, 3, -1, 0, 2}).Batched("Y", {2, 2, 3}, {1, 1, 1, 0, -1, 2, 5, 6, 7, 1, 2, 3});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {6, 4, 9, 5});
  t.CheckGradient({.inputs = {"X", "Y"}});
  t.CheckBatchZero();
}

TEST(DotTest, OrWithOne) {
  OpTest t("dot");
  t.Batched("X", {2, 20}, Numbers(40, 0.5f)).Batched("Y", {2, 20}, Numbers(40, -0.25f));
  ASSERT_OK(t.Run());
  float first = 0, second = 0;
  for (size_t w = 0; w < 20; ++w) {
    first += Numbers(40, 0.5f)[w] * Numbers(40, -0.25f)[w];
    second += Numbers(40, 0.5f)[20 + w] * Numbers(40, -0.25f)[20 + w];
  }
  t.ExpectOutput("Out", {2, 1}, {first, second}, 1e-4);
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST(DotTest, ShapesAreNamed) {
  OpTest narrow("dot");
  narrow.Batched("X", {1, 2}, {1, 2}).Batched("Y", {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(std::string(narrow.InferShapes().message()),
              HasSubstr("Y must be vectors of the width of X, [-1, T, 2] or [-1, 2], got [-1, 2, 3]"));
  OpTest fixed("dot");
  fixed.Batched("X", {1, 2}, {1, 2}).Fixed("Y", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(fixed.InferShapes().message()), HasSubstr("got [1, 2]"));
}

}  // namespace
}  // namespace weir
