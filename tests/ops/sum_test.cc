#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SelectedRows Rows(std::vector<int64_t> ids, std::vector<float> values) {
  SelectedRows rows;
  rows.height = 100;
  rows.values =
      Tensor::Of<float>({static_cast<int64_t>(ids.size()), static_cast<int64_t>(values.size() / ids.size())}, values);
  rows.ids = std::move(ids);
  rows.present = true;
  return rows;
}

TEST(SumTest, DenseInputsAreAddedInOrder) {
  OpTest t("sum");
  // (1e8 + 1) - 1e8 is 0 in float32; 1 + (1e8 - 1e8) would be 1.
  t.Batched("X", {1, 1}, {1e8}).Batched("X", {1, 1}, {1}).Batched("X", {1, 1}, {-1e8});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {0}, 0);
}

TEST(SumTest, AnAbsentGradientIsSkippedAndNotAddedAsZero) {
  OpTest t("sum");
  t.Batched("X", Tensor::Of<float>({1, 1}, {-0.0f}));
  t.Absent("X", {-1, 1});
  ASSERT_OK(t.Run());
  EXPECT_TRUE(std::signbit(t.Values("Out")[0]));
}

TEST(SumTest, NothingPresentGivesNothing) {
  OpTest t("sum");
  t.Absent("X", {-1, 1});
  t.Absent("X", {-1, 1});
  ASSERT_OK(t.Run());
  EXPECT_FALSE(t.Output("Out").initialized());
}

TEST(SumTest, RowsOfOneIdAreAddedInOrderAndStandWhereItFirstAppeared) {
  OpTest t("sum");
  t.Rows("X", Rows({7, 3, 7}, {1, 2, 10, 20, 100, 200}), 2).Rows("X", Rows({5, 3}, {0.5, 0.25, 1000, 2000}), 2);
  ASSERT_OK(t.Run());
  const SelectedRows& sum = std::get<SelectedRows>(t.OutputVar("Out"));
  EXPECT_THAT(sum.ids, ElementsAre(7, 3, 5));
  EXPECT_THAT(sum.values.span<float>(), ElementsAre(101, 202, 1010, 2020, 0.5, 0.25));
  EXPECT_TRUE(sum.merged);
  EXPECT_TRUE(sum.present);
}

TEST(SumTest, PlacesInTheStepsRowsAreKept) {
  SelectedRows a = Rows({7, 3}, {1, 10}), b = Rows({3, 9}, {100, 1000});
  a.step_rows = {2, 0};
  b.step_rows = {0, 5};
  OpTest t("sum");
  t.Rows("X", a, 1).Rows("X", b, 1);
  ASSERT_OK(t.Run());
  EXPECT_THAT(std::get<SelectedRows>(t.OutputVar("Out")).step_rows, ElementsAre(2, 0, 5));
}

TEST(SumTest, AbsentRowsAreSkipped) {
  OpTest t("sum");
  t.Rows("X", SelectedRows{.height = 100}, 1).Rows("X", Rows({4}, {1}), 1);
  ASSERT_OK(t.Run());
  EXPECT_THAT(std::get<SelectedRows>(t.OutputVar("Out")).ids, ElementsAre(4));
}

TEST(SumTest, RowsAreAddedIntoADenseSum) {
  SelectedRows rows = Rows({1, 1}, {1, 2, 3, 4});
  rows.height = 2;
  OpTest t("sum");
  t.Rows("X", rows, 2).Fixed("X", {2, 2}, {10, 20, 30, 40});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {10, 20, 34, 46}, 0);
}

TEST(SumTest, GradientGoesToEveryInput) {
  OpTest t("sum");
  t.Batched("X", {2, 1}, {1, 2}).Batched("X", {2, 1}, {3, 4});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(SumTest, TakesNoExamples) {
  OpTest t("sum");
  t.Batched("X", {2, 1}, {1, 2}).Batched("X", {2, 1}, {3, 4});
  t.CheckBatchZero();
}

TEST(SumTest, MismatchNamesBothShapes) {
  OpTest t("sum");
  t.Batched("X", {1, 1}, {1}).Batched("X", {1, 2}, {3, 4});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("sum: X[0] has dims [-1, 1], X[1] (X_1) [-1, 2]; they must be the same"));
}

TEST(SumTest, ARowOutsideOfTheDenseSumIsNamed) {
  SelectedRows rows = Rows({5}, {1});
  OpTest t("sum");
  t.Rows("X", rows, 1).Fixed("X", {100, 1}, std::vector<float>(100, 0));
  ASSERT_OK(t.Run());
  rows.ids = {100};
  OpTest outside("sum");
  outside.Rows("X", rows, 1).Fixed("X", {100, 1}, std::vector<float>(100, 0));
  EXPECT_THAT(std::string(outside.Run().message()), HasSubstr("row 100 is outside of the 100 rows of X"));
}

}  // namespace
}  // namespace weir
