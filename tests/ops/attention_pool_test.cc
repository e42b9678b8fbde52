#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const float kNan = std::numeric_limits<float>::quiet_NaN();

OpTest Attention(bool softmax) { return OpTest("attention_pool", {AttrB("softmax", softmax)}); }

TEST(AttentionPoolTest, WeighsTheElementsThatAreThere) {
  OpTest t = Attention(false);
  t.Batched("Score", {3, 2, 1}, {10, 100, kNan, kNan, 2, kNan})
      .Batched("Sequence", {3, 2, 2}, {1, 2, 3, 4, kNan, kNan, kNan, kNan, 5, 6, kNan, kNan})
      .Batched("Length", {3, 1}, {2, 0, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 2}, {310, 420, 0, 0, 10, 12}, 0);
  t.ExpectOutput("Weight", {3, 2, 1}, {10, 100, 0, 0, 2, 0}, 0);
}

TEST(AttentionPoolTest, SoftmaxIsOverTheElementsOfAnExample) {
  OpTest t = Attention(true);
  t.Batched("Score", {2, 2, 1}, {std::log(1.0f), std::log(3.0f), 7, 100})
      .Batched("Sequence", {2, 2, 1}, {8, 16, 5, kNan})
      .Batched("Length", {2, 1}, {2, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Weight", {2, 2, 1}, {0.25, 0.75, 1, 0}, 1e-6);
  t.ExpectOutput("Out", {2, 1}, {0.25 * 8 + 0.75 * 16, 5}, 1e-5);
}

TEST(AttentionPoolTest, WhatStandsBehindALengthHasNoGradient) {
  OpTest t = Attention(false);
  t.Batched("Score", {2, 2, 1}, {10, kNan, kNan, kNan})
      .Batched("Sequence", {2, 2, 1}, {3, kNan, kNan, kNan})
      .Batched("Length", {2, 1}, {1, 0});
  ASSERT_OK(t.Run());
  const std::vector<std::pair<std::string, Tensor>> dout = {{"Out", Tensor::Of<float>({2, 1}, {2, 5})}};
  absl::StatusOr<Variable> score = t.Gradient("Score", 0, dout);
  ASSERT_OK(score.status());
  EXPECT_THAT(std::get<Tensor>(*score).span<float>(), ElementsAre(6, 0, 0, 0));
  absl::StatusOr<Variable> sequence = t.Gradient("Sequence", 0, dout);
  ASSERT_OK(sequence.status());
  EXPECT_THAT(std::get<Tensor>(*sequence).span<float>(), ElementsAre(20, 0, 0, 0));
}

TEST(AttentionPoolTest, GradientAgreesWithDifferences) {
  for (const bool softmax : {false, true}) {
    for (const int64_t width : {1, 3, 16, 17}) {
      std::vector<float> k;
      for (int64_t i = 0; i < 3 * 4 * width; ++i) k.push_back(0.1f * static_cast<float>(i * 5 % 23) - 1.0f);
      OpTest t = Attention(softmax);
      t.Batched("Score", {3, 4, 1}, {0.3, -0.6, 0.9, 0.1, -0.2, 0.5, 0.7, 0.4, 0.8, -0.3, 0.2, 0.6})
          .Batched("Sequence", {3, 4, width}, k)
          .Batched("Length", {3, 1}, {4, 0, 3});
      t.CheckGradient({.inputs = {"Score", "Sequence"}, .outputs = {"Out"}});
      t.CheckBatchZero();
    }
  }
}

TEST(AttentionPoolTest, ThereIsAScoreForEachElement) {
  OpTest t = Attention(false);
  t.Batched("Score", {1, 1, 1}, {1}).Batched("Sequence", {1, 2, 1}, {3, 4}).Batched("Length", {1, 1}, {1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Score must be [-1, 2, 1], got [-1, 1, 1]"));
}

TEST(AttentionPoolTest, OnlyItsOutputMayBeUsed) {
  OpTest t = Attention(true);
  t.Batched("Score", {1, 2, 1}, {1, 2}).Batched("Sequence", {1, 2, 1}, {3, 4}).Batched("Length", {1, 1}, {2});
  ASSERT_OK(t.Run());
  EXPECT_THAT(
      std::string(t.Gradient("Score", 0, {{"Weight", Tensor::Of<float>({1, 2, 1}, {1, 1})}}).status().message()),
      HasSubstr("only Out may be used"));
}

}  // namespace
}  // namespace weir
