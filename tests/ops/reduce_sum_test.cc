#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

OpTest Reduce(std::vector<int64_t> dims, bool keep_dim) {
  OpTest t("reduce_sum", {AttrInts("dims", dims), AttrB("keep_dim", keep_dim)});
  t.Batched("X", {2, 2, 3}, {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60});
  return t;
}

TEST(ReduceSumTest, WithoutDimsAllButTheBatch) {
  OpTest t = Reduce({}, false);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2}, {21, 210}, 0);
}

TEST(ReduceSumTest, AMiddleDim) {
  OpTest t = Reduce({1}, false);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {5, 7, 9, 50, 70, 90}, 0);
}

TEST(ReduceSumTest, TheLastDimKept) {
  OpTest t = Reduce({-1}, true);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 1}, {6, 15, 60, 150}, 0);
}

TEST(ReduceSumTest, AllDimsKept) {
  OpTest t = Reduce({1, 2}, true);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1, 1}, {21, 210}, 0);
}

TEST(ReduceSumTest, LongRowsAreAddedInPartialSumsOf16) {
  std::vector<float> row(40, 1);
  row[0] = 1e8;  // here floats are 8 apart
  OpTest t("reduce_sum", {AttrInts("dims", {1})});
  t.Batched("X", {1, 40}, row);
  ASSERT_OK(t.Run());
  // Sum 0 holds elements 0, 16 and 32: 1e8. The tree adds 2 (sum 8), 5 (sums 4, 12), 10 and 20: 0, 8, 16, 32 above 1e8.
  t.ExpectOutput("Out", {1}, {100000032}, 0);
}

TEST(ReduceSumTest, GradientIsRepeated) {
  for (const bool keep : {false, true}) {
    Reduce({}, keep).CheckGradient({.inputs = {"X"}});
    Reduce({1}, keep).CheckGradient({.inputs = {"X"}});
    Reduce({2}, keep).CheckGradient({.inputs = {"X"}});
  }
}

TEST(ReduceSumTest, TakesNoExamples) {
  Reduce({}, false).CheckBatchZero();
  Reduce({2}, true).CheckBatchZero();
}

TEST(ReduceSumTest, TheBatchIsNeverAddedUp) {
  EXPECT_THAT(std::string(Reduce({0}, false).InferShapes().message()),
              HasSubstr("reduce_sum: dim 0 is the batch, which is never added up"));
}

TEST(ReduceSumTest, DimsMustExist) {
  EXPECT_THAT(std::string(Reduce({3}, false).InferShapes().message()),
              HasSubstr("reduce_sum: dim 3 is outside of X's dims [-1, 2, 3]"));
}

}  // namespace
}  // namespace weir
