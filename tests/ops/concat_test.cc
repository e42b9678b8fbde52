#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(ConcatTest, RowsAreJoinedInOrder) {
  OpTest t("concat", {AttrI("axis", 1)});
  t.Batched("X", {2, 2}, {1, 2, 3, 4}).Batched("X", {2, 1}, {5, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {1, 2, 5, 3, 4, 6}, 0);
}

TEST(ConcatTest, AMiddleAxis) {
  OpTest t("concat", {AttrI("axis", -2)});
  t.Batched("X", {1, 1, 2}, {1, 2}).Batched("X", {1, 2, 2}, {3, 4, 5, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 3, 2}, {1, 2, 3, 4, 5, 6}, 0);
}

TEST(ConcatTest, BlocksOfAParameterAreJoinedAlongRows) {
  OpTest t("concat", {AttrI("axis", 0)});
  t.Fixed("X", {1, 2}, {1, 2}).Fixed("X", {2, 2}, {3, 4, 5, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 2}, {1, 2, 3, 4, 5, 6}, 0);
}

TEST(ConcatTest, GradientIsCutAgain) {
  OpTest t("concat", {AttrI("axis", 1)});
  t.Batched("X", {2, 2}, {1, 2, 3, 4}).Batched("X", {2, 1}, {5, 6}).Batched("X", {2, 2}, {7, 8, 9, 10});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(ConcatTest, TakesNoExamples) {
  OpTest t("concat", {AttrI("axis", 1)});
  t.Batched("X", {2, 2}, {1, 2, 3, 4}).Batched("X", {2, 1}, {5, 6});
  t.CheckBatchZero();
}

TEST(ConcatTest, MismatchNamesBothShapes) {
  OpTest t("concat", {AttrI("axis", 1)});
  t.Batched("X", {1, 1, 2}, {1, 2}).Batched("X", {1, 1, 3}, {3, 4, 5});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("concat: X[0] has dims [-1, 1, 2], X[1] (X_1) [-1, 1, 3]; they may differ only along axis 1"));
}

TEST(ConcatTest, BatchesAreNotJoined) {
  OpTest t("concat", {AttrI("axis", 0)});
  t.Batched("X", {1, 2}, {1, 2}).Batched("X", {1, 2}, {3, 4});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("its size along axis 0 must be known"));
}

TEST(ConcatTest, AxisMustExist) {
  OpTest t("concat", {AttrI("axis", 2)});
  t.Batched("X", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("concat: axis 2 is outside of X's dims [-1, 2]"));
}

}  // namespace
}  // namespace weir
