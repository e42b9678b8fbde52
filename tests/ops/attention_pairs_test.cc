#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(AttentionPairsTest, ARowForEachElementThatIsThere) {
  OpTest t("attention_pairs");
  t.Batched("Query", {3, 1}, {2, 5, 7})
      .Batched("Sequence", {3, 2, 1}, {3, 4, kNan, kNan, 10, kNan})
      .Batched("Length", {3, 1}, {2, 0, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3, 2, 4}, {2, 3, -1, 6, 2, 4, -2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 7, 10, -3, 70, 0, 0, 0, 0}, 0);
}

TEST(AttentionPairsTest, PartsStandSideBySide) {
  OpTest t("attention_pairs");
  t.Batched("Query", {1, 2}, {1, 2}).Batched("Sequence", {1, 1, 2}, {3, 5}).Batched("Length", {1, 1}, {1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1, 8}, {1, 2, 3, 5, -2, -3, 3, 10}, 0);
}

TEST(AttentionPairsTest, WhatStandsBehindALengthHasNoGradient) {
  OpTest t("attention_pairs");
  t.Batched("Query", {2, 1}, {2, 5})
      .Batched("Sequence", {2, 2, 1}, {3, kNan, kNan, kNan})
      .Batched("Length", {2, 1}, {1, 0});
  ASSERT_OK(t.Run());
  std::vector<float> rows = {1, 10, 100, 1000};
  rows.resize(16, kNan);
  const std::vector<std::pair<std::string, Tensor>> dout = {{"Out", Tensor::Of<float>({2, 2, 4}, rows)}};
  absl::StatusOr<Variable> dk = t.Gradient("Sequence", 0, dout);
  ASSERT_OK(dk.status());
  EXPECT_THAT(std::get<Tensor>(*dk).span<float>(), ElementsAre(10 - 100 + 2000, 0, 0, 0));
  absl::StatusOr<Variable> dq = t.Gradient("Query", 0, dout);
  ASSERT_OK(dq.status());
  EXPECT_THAT(std::get<Tensor>(*dq).span<float>(), ElementsAre(1 + 100 + 3000, 0));
}

TEST(AttentionPairsTest, GradientAgreesWithDifferences) {
  for (const int64_t width : {1, 3, 16, 17}) {
    std::vector<float> q, k;
    for (int64_t i = 0; i < 3 * width; ++i) q.push_back(0.1f * static_cast<float>(i * 7 % 19) - 0.8f);
    for (int64_t i = 0; i < 3 * 4 * width; ++i) k.push_back(0.1f * static_cast<float>(i * 5 % 23) - 1.0f);
    OpTest t("attention_pairs");
    t.Batched("Query", {3, width}, q).Batched("Sequence", {3, 4, width}, k).Batched("Length", {3, 1}, {4, 0, 3});
    t.CheckGradient({.inputs = {"Query", "Sequence"}});
    t.CheckBatchZero();
  }
}

TEST(AttentionPairsTest, WidthsMustBeTheSame) {
  OpTest t("attention_pairs");
  t.Batched("Query", {1, 2}, {1, 2}).Batched("Sequence", {1, 1, 3}, {1, 2, 3}).Batched("Length", {1, 1}, {1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Query must be [-1, 3], got [-1, 2]"));
}

TEST(AttentionPairsTest, ALengthThatIsNoneIsNamed) {
  OpTest t("attention_pairs");
  t.Batched("Query", {1, 1}, {2}).Batched("Sequence", {1, 2, 1}, {3, 4}).Batched("Length", {1, 1}, {3});
  EXPECT_THAT(std::string(t.Run().message()),
              HasSubstr("Length of example 0 is 3; Sequence [1, 2, 1] has sequences of 0 to 2"));
}

}  // namespace
}  // namespace weir
