#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(WeightedSumTest, AddsTheVectorsOfAnExample) {
  OpTest t("weighted_sum");
  t.Batched("Weight", {2, 2}, {1, -2, 0.5f, 0}).Batched("Y", {2, 2, 3}, {1, 2, 3, 4, 5, 6, 2, 4, 6, 7, 8, 9});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {-7, -8, -9, 1, 2, 3});
  t.CheckGradient({.inputs = {"Weight", "Y"}});
  t.CheckBatchZero();
}

TEST(WeightedSumTest, ShapesAreNamed) {
  OpTest t("weighted_sum");
  t.Batched("Weight", {1, 3}, {1, 2, 3}).Batched("Y", {1, 2, 1}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("Y must have a vector for each of the weights [-1, 3], got [-1, 2, 1]"));
}

}  // namespace
}  // namespace weir
