#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ScaleTest, ValuesByHand) {
  OpTest t("scale", {AttrF("scale", 2), AttrF("bias", -1)});
  t.Batched("X", {2, 1}, {3, -0.5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {5, -2}, 0);
}

TEST(ScaleTest, WithoutBiasMinusZeroKeepsItsSign) {
  OpTest t("scale", {AttrF("scale", 2)});
  t.Batched("X", {1}, {-0.0f});
  ASSERT_OK(t.Run());
  EXPECT_TRUE(std::signbit(t.Values("Out")[0]));
}

TEST(ScaleTest, RowsAreScaledToo) {
  SelectedRows rows;
  rows.ids = {4, 9};
  rows.values = Tensor::Of<float>({2, 1}, {1, 2});
  rows.present = true;
  OpTest t("scale", {AttrF("scale", 0.5)});
  t.Rows("X", rows, 1);
  ASSERT_OK(t.Run());
  const SelectedRows& out = std::get<SelectedRows>(t.OutputVar("Out"));
  EXPECT_THAT(out.ids, ElementsAre(4, 9));
  EXPECT_THAT(out.values.span<float>(), ElementsAre(0.5, 1));
}

TEST(ScaleTest, RowsTakeNoBias) {
  OpTest t("scale", {AttrF("bias", 1)});
  t.Rows("X", SelectedRows(), 1);
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("bias must be 0, got 1"));
}

TEST(ScaleTest, GradientIsScaled) {
  OpTest t("scale", {AttrF("scale", -3), AttrF("bias", 1)});
  t.Batched("X", {2, 2}, {1, 2, 3, 6});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(ScaleTest, TakesNoExamples) {
  OpTest t("scale", {AttrF("scale", -3), AttrF("bias", 1)});
  t.Batched("X", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST(ScaleTest, RefusesIntegers) {
  OpTest t("scale");
  t.Batched("X", Tensor::Of<int64_t>({1}, {1}));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("scale: X must be FLOAT32, got INT64"));
}

}  // namespace
}  // namespace weir
