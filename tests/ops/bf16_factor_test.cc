// Packed factors in bfloat16: a gradient packed in one pass against a pass for each part, to the bit.
#include "ops/bf16_factor.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/gemm_bf16.h"

namespace weir {
namespace {

std::vector<float> Numbers(uint64_t key, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    out[static_cast<size_t>(i)] = UniformFloat(Philox(key, static_cast<uint64_t>(i), 0).v[0]) - 0.5f;
  }
  return out;
}

std::vector<uint32_t> Words(const Bf16Factor& factor) {
  const int64_t tiles = (factor.lines() + Bf16Factor::kSide - 1) / Bf16Factor::kSide * factor.depth();
  return {factor.words(), factor.words() + tiles * Bf16Factor::kTileWords};
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class Bf16FactorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasBf16Unit(Bf16Unit::kAvx512)) GTEST_SKIP() << "this processor has no products in bfloat16";
  }
};

TEST_F(Bf16FactorTest, AGradientInOnePassHasTheBitsOfAPassForEachPart) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 40}, {16, 16}, {17, 33}, {32, 32}, {33, 15}, {50, 49}, {100, 64}}) {
    for (const bool relu : {false, true}) {
      std::vector<float> d = Numbers(1, rows * columns), out = Numbers(2, rows * columns);
      d.back() = std::numeric_limits<float>::quiet_NaN();
      out.front() = 0;
      std::vector<float> counted = d, sums(static_cast<size_t>(columns), 0.0f);
      for (size_t i = 0; i < d.size(); ++i) {
        if (relu && !(out[i] > 0)) counted[i] = 0;
        sums[i % static_cast<size_t>(columns)] += counted[i];
      }
      Bf16Factor left, right, want_left, want_right;
      want_left.PackLeft(rows, columns, counted.data(), columns, /*transpose=*/false);
      want_right.PackRight(rows, columns, counted.data(), columns, /*transpose=*/false);
      std::vector<float> got(static_cast<size_t>(columns), -1.0f);
      const ResultGradient gradient = {
          .rows = rows, .columns = columns, .d = d.data(), .relu = relu ? out.data() : nullptr};
      PackGradient(gradient, &left, &right, got.data());
      EXPECT_EQ(Words(left), Words(want_left)) << rows << " x " << columns;
      EXPECT_EQ(Words(right), Words(want_right)) << rows << " x " << columns;
      EXPECT_EQ(Bits(got), Bits(sums)) << rows << " x " << columns;
    }
  }
}

TEST_F(Bf16FactorTest, PartsOfAGradientThatNobodyAsksForAreLeftOut) {
  const int rows = 20, columns = 40;
  const std::vector<float> d = Numbers(1, rows * columns);
  const ResultGradient gradient = {.rows = rows, .columns = columns, .d = d.data()};
  Bf16Factor left, right, only_left, only_right;
  std::vector<float> sums(columns), only_sums(columns);
  PackGradient(gradient, &left, &right, sums.data());
  PackGradient(gradient, &only_left, nullptr, nullptr);
  PackGradient(gradient, nullptr, &only_right, nullptr);
  PackGradient(gradient, nullptr, nullptr, only_sums.data());
  EXPECT_EQ(Words(only_left), Words(left));
  EXPECT_EQ(Words(only_right), Words(right));
  EXPECT_EQ(Bits(only_sums), Bits(sums));
}

}  // namespace
}  // namespace weir
