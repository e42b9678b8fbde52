#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(ReshapeTest, ElementsKeepTheirOrder) {
  OpTest t("reshape", {AttrInts("shape", {-1, 4})});
  t.Batched("X", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, 0);
}

TEST(ReshapeTest, FixedSizes) {
  OpTest t("reshape", {AttrInts("shape", {-1, 2})});
  t.Fixed("X", {6}, {1, 2, 3, 4, 5, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 2}, {1, 2, 3, 4, 5, 6}, 0);
  EXPECT_EQ(t.OutputDesc("Out").dims(0), 3);
}

TEST(ReshapeTest, GradientIsReshapedBack) {
  OpTest t("reshape", {AttrInts("shape", {-1, 1, 4})});
  t.Batched("X", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(ReshapeTest, TakesNoExamples) {
  OpTest t("reshape", {AttrInts("shape", {-1, 1, 4})});
  t.Batched("X", {1, 2, 2}, {1, 2, 3, 4});
  t.CheckBatchZero();
}

TEST(ReshapeTest, ExamplesKeepTheirSize) {
  OpTest t("reshape", {AttrInts("shape", {-1, 3})});
  t.Batched("X", {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("reshape: X has dims [-1, 2], which [-1, 3] cannot hold"));
}

TEST(ReshapeTest, OnlyTheFirstSizeMayBeOpen) {
  OpTest t("reshape", {AttrInts("shape", {2, -1})});
  t.Fixed("X", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("only the first size may be -1"));
}

}  // namespace
}  // namespace weir
