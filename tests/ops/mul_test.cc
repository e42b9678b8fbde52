#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(MulTest, ValuesByHand) {
  OpTest t("mul");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Fixed("Y", {3, 2}, {1, 0, 0, 1, 1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {4, 5, 10, 11}, 0);
}

TEST(MulTest, DimsAfterTheBatchAreTakenAsOne) {
  OpTest t("mul");
  t.Batched("X", {1, 2, 2}, {1, 2, 3, 4}).Fixed("Y", {4, 1}, {1, 10, 100, 1000});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {4321}, 0);
}

TEST(MulTest, GradientIsThatOfTheProduct) {
  OpTest t("mul");
  t.Batched("X", {2, 1, 3}, {1, -2, 3, 0.5, 5, -1}).Fixed("Y", {3, 2}, {1, 0.3, -0.7, 1, 2, -1});
  t.CheckGradient({.inputs = {"X", "Y"}});
}

TEST(MulTest, TakesNoExamples) {
  OpTest t("mul");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Fixed("Y", {3, 2}, {1, 0, 0, 1, 1, 1});
  t.CheckBatchZero();
}

TEST(MulTest, MismatchNamesBothShapes) {
  OpTest t("mul");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Fixed("Y", {2, 2}, {1, 0, 0, 1});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("mul: X has dims [-1, 3], 3 values per example; Y has dims [2, 2] and takes 2"));
}

TEST(MulTest, AVectorIsNoMatrix) {
  OpTest t("mul");
  t.Batched("X", {1, 3}, {1, 2, 3}).Fixed("Y", {3}, {1, 0, 0});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("mul: Y must have 2 dims, got [3] (variable Y_0)"));
}

}  // namespace
}  // namespace weir
