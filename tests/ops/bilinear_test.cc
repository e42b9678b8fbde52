#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return values;
}

// The definition, in double. matrices: 1, F - 1 or the number of pairs.
std::vector<float> ByHand(int64_t batch, int64_t vectors, int64_t width, int64_t matrices, const std::vector<float>& x,
                          const std::vector<float>& w) {
  std::vector<float> out;
  const int64_t pairs = vectors * (vectors - 1) / 2;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t pair = 0;
    for (int64_t i = 0; i < vectors; ++i) {
      for (int64_t j = i + 1; j < vectors; ++j, ++pair) {
        const int64_t matrix = matrices == pairs ? pair : matrices == 1 ? 0 : i;
        for (int64_t c = 0; c < width; ++c) {
          double u = 0;
          for (int64_t k = 0; k < width; ++k) {
            u += static_cast<double>(x[static_cast<size_t>((b * vectors + i) * width + k)]) *
                 static_cast<double>(w[static_cast<size_t>((matrix * width + k) * width + c)]);
          }
          out.push_back(
              static_cast<float>(u * static_cast<double>(x[static_cast<size_t>((b * vectors + j) * width + c)])));
        }
      }
    }
  }
  return out;
}

std::vector<int64_t> MatrixDims(int64_t matrices, int64_t width) {
  return matrices == 1 ? std::vector<int64_t>{width, width} : std::vector<int64_t>{matrices, width, width};
}

TEST(BilinearTest, MultipliesTheFirstOfEachPair) {
  OpTest t("bilinear");
  t.Batched("X", {1, 3, 2}, {1, 2, 3, 4, 5, 6}).Fixed("W", {2, 2}, {1, 10, 100, 1000});
  ASSERT_OK(t.Run());
  // (1, 2) w = (201, 2010), (3, 4) w = (403, 4030).
  t.ExpectOutput("Out", {1, 3, 2}, {603, 8040, 1005, 12060, 2015, 24180});
}

TEST(BilinearTest, EqualsItsDefinitionWithAnyMatrices) {
  for (const int64_t batch : {1, 3, 20, 150}) {
    for (const int64_t vectors : {2, 4, 7}) {
      for (const int64_t width : {1, 5, 16}) {
        for (const int64_t matrices : {int64_t{1}, vectors - 1, vectors * (vectors - 1) / 2}) {
          SCOPED_TRACE(absl::StrCat(batch, " x ", vectors, " x ", width, ", ", matrices, " matrices"));
          const std::vector<float> x = Numbers(batch * vectors * width, 1), w = Numbers(matrices * width * width, 2);
          OpTest t("bilinear");
          t.Batched("X", {batch, vectors, width}, x).Fixed("W", MatrixDims(matrices, width), w);
          ASSERT_OK(t.Run());
          t.ExpectOutput("Out", {batch, vectors * (vectors - 1) / 2, width},
                         ByHand(batch, vectors, width, matrices, x, w), 1e-5);
        }
      }
    }
  }
}

TEST(BilinearTest, Gradients) {
  for (const int64_t matrices : {1, 3, 6}) {
    OpTest t("bilinear");
    t.Batched("X", {3, 4, 3}, Numbers(36, 3)).Fixed("W", MatrixDims(matrices, 3), Numbers(matrices * 9, 4));
    ASSERT_OK(t.Run());
    t.CheckGradient({.inputs = {"X", "W"}});
    t.CheckBatchZero();
  }
}

TEST(BilinearTest, AnExampleHasTheSameBitsAmongAnyNumberOfOthers) {
  constexpr int64_t kBatch = 150, kVectors = 5, kWidth = 9, kPairs = 10;
  const std::vector<float> x = Numbers(kBatch * kVectors * kWidth, 5), d = Numbers(kBatch * kPairs * kWidth, 6);
  for (const int64_t matrices : {int64_t{1}, kVectors - 1, kPairs}) {
    ExpectBitsOfExamplesAlone(kBatch, [&](int64_t first, int64_t rows, std::vector<std::vector<float>>* results) {
      OpTest t("bilinear");
      t.Batched("X", {rows, kVectors, kWidth}, PartOfBatch(x, kBatch, first, rows))
          .Fixed("W", MatrixDims(matrices, kWidth), Numbers(matrices * kWidth * kWidth, 7));
      ASSERT_OK(t.Run());
      const absl::StatusOr<Variable> grad =
          t.Gradient("X", 0, {{"Out", Tensor::Of<float>({rows, kPairs, kWidth}, PartOfBatch(d, kBatch, first, rows))}});
      ASSERT_OK(grad.status());
      const absl::Span<const float> values = std::get<Tensor>(*grad).span<float>();
      *results = {t.Values("Out"), {values.begin(), values.end()}};
    });
  }
}

TEST(BilinearTest, ShapesAreNamed) {
  OpTest one("bilinear");
  one.Batched("X", {1, 1, 2}, {1, 2}).Fixed("W", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(std::string(one.InferShapes().message()), HasSubstr("X has dims [-1, 1, 2]; pairs need from 2 to"));
  OpTest two("bilinear");
  two.Batched("X", {1, 4, 1}, {1, 2, 3, 4}).Fixed("W", {2, 1, 1}, {1, 2});
  EXPECT_THAT(std::string(two.InferShapes().message()),
              HasSubstr("W must be [1, 1], or that for each of 3 vectors or 6 pairs, got [2, 1, 1]"));
}

}  // namespace
}  // namespace weir
