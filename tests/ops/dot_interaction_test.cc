#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, int64_t step) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(0.1f * static_cast<float>(i * step % 23) - 0.9f);
  return values;
}

TEST(DotInteractionTest, PairsStandRowByRow) {
  OpTest t("dot_interaction");
  // a = (1, 2), b = (3, 4), c = (5, 6): ba, ca, cb.
  t.Batched("X", {2, 3, 2}, {1, 2, 3, 4, 5, 6, 1, 0, 0, 1, 1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {3 + 8, 5 + 12, 15 + 24, 0, 1, 1}, 0);
}

TEST(DotInteractionTest, SelfInteractionHasTheSquaresToo) {
  OpTest t("dot_interaction", {AttrB("self_interaction", true)});
  t.Batched("X", {1, 3, 2}, {1, 2, 3, 4, 5, 6});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 6}, {1 + 4, 3 + 8, 9 + 16, 5 + 12, 15 + 24, 25 + 36}, 0);
}

TEST(DotInteractionTest, InputsStandSideBySide) {
  OpTest t("dot_interaction");
  t.Batched("X", {2, 2}, {1, 2, 10, 20}).Batched("X", {2, 2, 2}, {3, 4, 5, 6, 30, 40, 50, 60});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {11, 17, 39, 1100, 1700, 3900}, 0);
}

// Vectors and widths around the blocks that the loops work in.
TEST(DotInteractionTest, EveryPairIsTheSumOfItsTermsInOrder) {
  for (const bool self : {false, true}) {
    for (const int64_t vectors : {2, 3, 15, 16, 17, 33}) {
      for (const int64_t width : {1, 3, 16, 19}) {
        const std::vector<float> x = Numbers(2 * vectors * width, 7);
        std::vector<float> expected;
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t i = 0; i < vectors; ++i) {
            for (int64_t j = 0; j < (self ? i + 1 : i); ++j) {
              float sum = 0;
              for (int64_t w = 0; w < width; ++w)
                sum += x[(b * vectors + i) * width + w] * x[(b * vectors + j) * width + w];
              expected.push_back(sum);
            }
          }
        }
        OpTest t("dot_interaction", {AttrB("self_interaction", self)});
        t.Batched("X", {2, vectors, width}, x);
        ASSERT_OK(t.Run());
        ASSERT_EQ(t.Output("Out").size(), static_cast<int64_t>(expected.size()));
        EXPECT_EQ(std::memcmp(t.Output("Out").raw(), expected.data(), 4 * expected.size()), 0)
            << vectors << " of " << width;
      }
    }
  }
}

TEST(DotInteractionTest, GradientAgreesWithDifferences) {
  for (const bool self : {false, true}) {
    for (const int64_t width : {1, 3, 16, 17}) {
      OpTest t("dot_interaction", {AttrB("self_interaction", self)});
      t.Batched("X", {3, width}, Numbers(3 * width, 5)).Batched("X", {3, 4, width}, Numbers(12 * width, 7));
      t.CheckGradient({.inputs = {"X"}});
      t.CheckBatchZero();
    }
  }
}

TEST(DotInteractionTest, GradientByHand) {
  OpTest t("dot_interaction", {AttrB("self_interaction", true)});
  t.Batched("X", {1, 2}, {1, 2}).Batched("X", {1, 1, 2}, {3, 4});
  ASSERT_OK(t.Run());
  // Gradients of the products a.a, b.a and b.b.
  absl::StatusOr<Variable> db = t.Gradient("X", 1, {{"Out", Tensor::Of<float>({1, 3}, {1, 10, 100})}});
  ASSERT_OK(db.status());
  EXPECT_EQ(ShapeString(std::get<Tensor>(*db).dims()), "[1, 1, 2]");
  EXPECT_THAT(std::get<Tensor>(*db).span<float>(), ElementsAre(10 * 1 + 200 * 3, 10 * 2 + 200 * 4));
}

TEST(DotInteractionTest, AnInfiniteVectorSpoilsOnlyItsOwnPairs) {
  const float inf = std::numeric_limits<float>::infinity();
  OpTest t("dot_interaction");
  t.Batched("X", {1, 3, 1}, {1, 2, inf});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Values("Out"), ElementsAre(2, inf, inf));
  // The gradient of the infinite vector itself is of the others only.
  absl::StatusOr<Variable> dx = t.Gradient("X", 0, {{"Out", Tensor::Of<float>({1, 3}, {1, 1, 1})}});
  ASSERT_OK(dx.status());
  EXPECT_THAT(std::get<Tensor>(*dx).span<float>(), ElementsAre(inf, inf, 3));
}

TEST(DotInteractionTest, WidthsMustBeTheSame) {
  OpTest t("dot_interaction");
  t.Batched("X", {1, 2}, {1, 2}).Batched("X", {1, 1, 3}, {3, 4, 5});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("dot_interaction: X[1] (X_1) has dims [-1, 1, 3], X[0] [-1, 2]; inputs are [B, S, W] or [B, W] "
                        "of one width"));
}

TEST(DotInteractionTest, OneVectorHasNoPairs) {
  OpTest t("dot_interaction");
  t.Batched("X", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("1 vectors have no pairs, or too many"));
}

}  // namespace
}  // namespace weir
