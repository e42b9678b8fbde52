#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(SigmoidCrossEntropyTest, ValuesByHand) {
  OpTest t("sigmoid_cross_entropy_with_logits");
  // log 2; log(1 + e^-2); log(1 + e^2)
  t.Batched("X", {3, 1}, {0, 2, 2}).Batched("Label", {3, 1}, {1, 1, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 1}, {0.6931472, 0.1269280, 2.1269280});
}

TEST(SigmoidCrossEntropyTest, LargeLogitsNeitherOverflowNorVanish) {
  OpTest t("sigmoid_cross_entropy_with_logits");
  t.Batched("X", {4, 1}, {1000, -1000, 20, -1000}).Batched("Label", {4, 1}, {0, 1, 1, 0});
  ASSERT_OK(t.Run());
  EXPECT_EQ(t.Values("Out")[0], 1000);
  EXPECT_EQ(t.Values("Out")[1], 1000);
  EXPECT_NEAR(t.Values("Out")[2], 2.0611537e-9, 1e-14);  // log(1 + e^-20)
  EXPECT_EQ(t.Values("Out")[3], 0);
}

TEST(SigmoidCrossEntropyTest, WeightsMultiplyTheLoss) {
  OpTest t("sigmoid_cross_entropy_with_logits");
  t.Batched("X", {2, 1}, {0, 0}).Batched("Label", {2, 1}, {1, 0}).Batched("Weight", {2, 1}, {3, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {2.0794415, 0});
}

TEST(SigmoidCrossEntropyTest, GradientIsThatOfTheLoss) {
  for (const bool weighted : {false, true}) {
    OpTest t("sigmoid_cross_entropy_with_logits");
    t.Batched("X", {4, 1}, {0.3, -2, 4, 1}).Batched("Label", {4, 1}, {1, 0, 0, 0.5});
    if (weighted) t.Batched("Weight", {4, 1}, {1, 2, 0.5, 0});
    t.CheckGradient({.inputs = {"X"}});
  }
}

TEST(SigmoidCrossEntropyTest, TakesNoExamples) {
  OpTest t("sigmoid_cross_entropy_with_logits");
  t.Batched("X", {1, 1}, {0}).Batched("Label", {1, 1}, {1}).Batched("Weight", {1, 1}, {2});
  t.CheckBatchZero();
}

TEST(SigmoidCrossEntropyTest, ShapesAreNamed) {
  OpTest wide("sigmoid_cross_entropy_with_logits");
  wide.Batched("X", {1, 2}, {0, 0}).Batched("Label", {1, 1}, {1});
  EXPECT_THAT(std::string(wide.InferShapes().message()),
              HasSubstr("sigmoid_cross_entropy_with_logits: X must be [B, 1], one number per example, got [-1, 2]"));
  OpTest label("sigmoid_cross_entropy_with_logits");
  label.Batched("X", {1, 1}, {0}).Batched("Label", {1}, {1});
  EXPECT_THAT(std::string(label.InferShapes().message()),
              HasSubstr("Label must be [B, 1], one number per example, got [-1]"));
  OpTest weight("sigmoid_cross_entropy_with_logits");
  weight.Batched("X", {1, 1}, {0}).Batched("Label", {1, 1}, {1}).Batched("Weight", Tensor::Of<int64_t>({1, 1}, {1}));
  EXPECT_THAT(std::string(weight.InferShapes().message()), HasSubstr("Weight must be FLOAT32, got INT64"));
}

}  // namespace
}  // namespace weir
