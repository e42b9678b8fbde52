#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr char kOp[] = "softmax_with_cross_entropy";

TEST(SoftmaxCrossEntropyTest, ValuesByHand) {
  OpTest t(kOp);
  // Probabilities 1/4 and 3/4; label 1, then label 0.
  t.Batched("Logits", {2, 2}, {0, 1.0986123, 0, 1.0986123}).Batched("Label", {2, 1}, {1, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Softmax", {2, 2}, {0.25, 0.75, 0.25, 0.75});
  t.ExpectOutput("Loss", {2, 1}, {0.2876821, 1.3862944});
}

TEST(SoftmaxCrossEntropyTest, AHopelessClassCostsItsDistance) {
  OpTest t(kOp);
  t.Batched("Logits", {1, 2}, {500, -500}).Batched("Label", {1, 1}, {1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Loss", {1, 1}, {1000}, 0);
}

TEST(SoftmaxCrossEntropyTest, LabelsMayBeIntegersAndWeighted) {
  OpTest t(kOp);
  t.Batched("Logits", {2, 2}, {0, 0, 0, 0})
      .Batched("Label", Tensor::Of<int64_t>({2, 1}, {1, 0}))
      .Batched("Weight", {2, 1}, {2, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Loss", {2, 1}, {1.3862944, 0});
}

TEST(SoftmaxCrossEntropyTest, GradientIsThatOfTheLoss) {
  for (const bool weighted : {false, true}) {
    OpTest t(kOp);
    t.Batched("Logits", {2, 3}, {0.3, -1, 0.5, 2, 0, 1}).Batched("Label", {2, 1}, {2, 0});
    if (weighted) t.Batched("Weight", {2, 1}, {2, 0.3});
    t.CheckGradient({.inputs = {"Logits"}, .outputs = {"Loss"}});
  }
}

TEST(SoftmaxCrossEntropyTest, NoGradientFlowsThroughSoftmax) {
  OpTest t(kOp);
  t.Batched("Logits", {1, 2}, {0, 0}).Batched("Label", {1, 1}, {1});
  ASSERT_OK(t.Run());
  const absl::Status status = t.Gradient("Logits", 0, {{"Softmax", Tensor::Of<float>({1, 2}, {1, 1})}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("no gradient flows through Softmax"));
}

TEST(SoftmaxCrossEntropyTest, TakesNoExamples) {
  OpTest t(kOp);
  t.Batched("Logits", {1, 2}, {0, 0}).Batched("Label", {1, 1}, {1});
  t.CheckBatchZero({"Loss"});
}

TEST(SoftmaxCrossEntropyTest, ALabelOutsideOfTheClassesIsNamed) {
  OpTest t(kOp);
  t.Batched("Logits", {2, 2}, {0, 0, 0, 0}).Batched("Label", {2, 1}, {1, 2});
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("Label of example 1 is 2; it must be a class"));
  OpTest fraction(kOp);
  fraction.Batched("Logits", {1, 2}, {0, 0}).Batched("Label", {1, 1}, {0.5});
  EXPECT_THAT(std::string(fraction.Run().message()), HasSubstr("Label of example 0 is 0.5"));
  OpTest integer(kOp);
  integer.Batched("Logits", {1, 2}, {0, 0}).Batched("Label", Tensor::Of<int64_t>({1, 1}, {-1}));
  EXPECT_THAT(std::string(integer.Run().message()), HasSubstr("Label of example 0 is -1"));
}

TEST(SoftmaxCrossEntropyTest, ShapesAreNamed) {
  OpTest t(kOp);
  t.Batched("Logits", {1, 2}, {0, 0}).Batched("Label", {1, 2}, {1, 0});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("Label must be [-1, 1], one class per example, got [-1, 2]"));
}

}  // namespace
}  // namespace weir
