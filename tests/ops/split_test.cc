#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitTest, SectionsAreCutInOrder) {
  OpTest t("split", {AttrI("axis", 1), AttrInts("sections", {1, 2})});
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {1, 4}, 0, 0);
  t.ExpectOutput("Out", {2, 2}, {2, 3, 5, 6}, 0, 1);
}

TEST(SplitTest, WithoutSectionsThePartsAreEqual) {
  OpTest t("split", {AttrI("axis", -1)});
  t.Batched("X", {1, 4}, {1, 2, 3, 4}).Outputs("Out", 2);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2}, {1, 2}, 0, 0);
  t.ExpectOutput("Out", {1, 2}, {3, 4}, 0, 1);
}

TEST(SplitTest, GradientIsJoinedAgain) {
  OpTest t("split", {AttrI("axis", 1), AttrInts("sections", {1, 2})});
  t.Batched("X", {2, 3, 1}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  t.CheckGradient({.inputs = {"X"}});
}

TEST(SplitTest, APieceThatNobodyUsesHasNoGradient) {
  OpTest t("split", {AttrI("axis", 1), AttrInts("sections", {1, 2})});
  t.Batched("X", {1, 3}, {1, 2, 3}).Outputs("Out", 2);
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> dx = t.Gradient("X", 0, {{"Out_1", Tensor::Of<float>({1, 2}, {7, 8})}});
  ASSERT_OK(dx.status());
  EXPECT_THAT(std::get<Tensor>(*dx).span<float>(), ElementsAre(0, 7, 8));
}

TEST(SplitTest, TakesNoExamples) {
  OpTest t("split", {AttrI("axis", 1), AttrInts("sections", {1, 2})});
  t.Batched("X", {1, 3}, {1, 2, 3}).Outputs("Out", 2);
  t.CheckBatchZero();
}

TEST(SplitTest, SectionsMustAddUp) {
  OpTest t("split", {AttrI("axis", 1), AttrInts("sections", {1, 1})});
  t.Batched("X", {1, 3}, {1, 2, 3}).Outputs("Out", 2);
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("split: sections [1, 1] of 2 outputs must be one per output and add up to 3"));
}

TEST(SplitTest, EqualPartsMustDivide) {
  OpTest t("split", {AttrI("axis", 1)});
  t.Batched("X", {1, 3}, {1, 2, 3}).Outputs("Out", 2);
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("3 does not divide into 2 equal parts"));
}

TEST(SplitTest, TheBatchIsNotCut) {
  OpTest t("split", {AttrI("axis", 0)});
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("its size along axis 0 must be known"));
}

}  // namespace
}  // namespace weir
