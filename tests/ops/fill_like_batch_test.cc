#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(FillLikeBatchTest, OneNumberPerExample) {
  OpTest t("fill_like_batch", {AttrF("value", 0.5)});
  t.Batched("X", {3, 1}, {7, 8, 9});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 1}, {0.5, 0.5, 0.5}, 0);
}

TEST(FillLikeBatchTest, AScalarIsTheNumberOfExamplesTimesTheValue) {
  OpTest t("fill_like_batch", {AttrF("value", 0.5), AttrB("scalar_times_batch", true)});
  t.Fixed("X", {}, {7});
  t.set_batch(3);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {}, {1.5}, 0);
}

TEST(FillLikeBatchTest, TakesNoExamples) {
  OpTest t("fill_like_batch");
  t.Batched("X", {3, 1}, {7, 8, 9});
  t.CheckBatchZero();
}

TEST(FillLikeBatchTest, OnlyAScalarIsTimesTheBatch) {
  OpTest t("fill_like_batch", {AttrB("scalar_times_batch", true)});
  t.Batched("X", {3, 1}, {7, 8, 9});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X must be a scalar, got dims [-1, 1]"));
}

}  // namespace
}  // namespace weir
