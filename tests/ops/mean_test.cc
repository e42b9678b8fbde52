#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(MeanTest, ValuesByHand) {
  OpTest t("mean");
  t.Batched("X", {2, 2}, {1, 2, 3, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {}, {3}, 0);
}

TEST(MeanTest, NoExamplesHaveTheMeanZero) {
  OpTest t("mean");
  t.Batched("X", {0, 2}, {});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {}, {0}, 0);
}

TEST(MeanTest, GradientIsSharedOut) {
  OpTest t("mean");
  t.Batched("X", {2, 2}, {1, 2, 3, 6});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(MeanTest, TakesNoExamples) {
  OpTest t("mean");
  t.Batched("X", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST(MeanTest, RefusesIntegers) {
  OpTest t("mean");
  t.Batched("X", Tensor::Of<int64_t>({1}, {1}));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("mean: X must be FLOAT32, got INT64"));
}

}  // namespace
}  // namespace weir
