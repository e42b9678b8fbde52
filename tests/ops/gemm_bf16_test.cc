// Products of matrices with factors in bfloat16 against their plain definition, to the bit: the order of the sums of
// each unit, all transpositions, sizes around the borders of tiles, strides; values that are not finite.
#include "ops/gemm_bf16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "framework/base/philox.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::Each;

std::vector<float> Numbers(uint64_t key, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    out[static_cast<size_t>(i)] = UniformFloat(Philox(key, static_cast<uint64_t>(i), 0).v[0]) - 0.5f;
  }
  return out;
}

float Rounded(float x) { return OfBFloat16(BFloat16Of(x)); }

// Adds as the units do: to nearest, without a fused product, since a product of two bfloat16 has at most 16 bits.
float Sum(Bf16Unit unit, int64_t k, const auto& a, const auto& b) {
  float sum = 0;
  if (unit == Bf16Unit::kAvx512) {
    for (int64_t p = 0; p < k; p += 2) {
      if (p + 1 < k) sum += a(p + 1) * b(p + 1);
      sum += a(p) * b(p);
    }
    return sum;
  }
  for (int64_t tile = 0; tile < k; tile += 32) {
    float even = 0, odd = 0;
    for (int64_t p = tile; p < std::min(k, tile + 32); ++p) (p % 2 == 0 ? even : odd) += a(p) * b(p);
    sum += even + odd;
  }
  return sum;
}

class GemmBf16Test : public ::testing::TestWithParam<Bf16Unit> {
 protected:
  void SetUp() override {
    if (!HasBf16Unit(GetParam())) GTEST_SKIP() << "this processor has no such unit";
  }
};

TEST_P(GemmBf16Test, EveryElementIsTheChainOfItsDefinition) {
  const std::tuple<int, int, int> shapes[] = {{1, 1, 1},   {1, 1, 2},    {3, 5, 7},      {16, 16, 32},  {17, 33, 65},
                                              {64, 1, 50}, {1, 40, 31},  {8, 48, 33},    {9, 49, 64},   {50, 31, 429},
                                              {32, 32, 1}, {33, 47, 96}, {31, 15, 1000}, {100, 100, 63}};
  for (const auto& [m, n, k] : shapes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        // Rows of the matrices have gaps, in which nothing may be read into the result or be written.
        const int lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
        const std::vector<float> a = Numbers(1, int64_t{lda} * (ta ? k : m)),
                                 b = Numbers(2, int64_t{ldb} * (tb ? n : k));
        std::vector<float> c(static_cast<size_t>(ldc * m), -7);
        GemmBf16(GetParam(), m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc,
                 {.transpose_a = ta, .transpose_b = tb});
        for (int i = 0; i < m; ++i) {
          for (int j = 0; j < ldc; ++j) {
            const float expected =
                j >= n
                    ? -7
                    : Sum(
                          GetParam(), k,
                          [&, i = i](int64_t p) {
                            return Rounded(a[static_cast<size_t>(ta ? p * lda + i : i * lda + p)]);
                          },
                          [&](int64_t p) { return Rounded(b[static_cast<size_t>(tb ? j * ldb + p : p * ldb + j)]); });
            ASSERT_EQ(std::bit_cast<uint32_t>(c[static_cast<size_t>(i * ldc + j)]), std::bit_cast<uint32_t>(expected))
                << i << ", " << j << " of " << m << " x " << n << " x " << k << (ta ? ", a" : "") << (tb ? ", b" : "")
                << " transposed: " << c[static_cast<size_t>(i * ldc + j)] << " and not " << expected;
          }
        }
      }
    }
  }
}

TEST_P(GemmBf16Test, ScalesAndAddsToWhatIsThere) {
  const int m = 33, n = 18, k = 70;
  const std::vector<float> a = Numbers(1, m * k), b = Numbers(2, k * n), before = Numbers(3, m * n);
  std::vector<float> plain(m * n), scaled = before;
  GemmBf16(GetParam(), m, n, k, a.data(), k, b.data(), n, plain.data(), n, {});
  GemmBf16(GetParam(), m, n, k, a.data(), k, b.data(), n, scaled.data(), n, {.alpha = 2, .beta = 0.5});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], 2 * plain[i] + 0.5f * before[i]) << i;
}

TEST_P(GemmBf16Test, AnEmptySumIsZeroWhateverWasThere) {
  std::vector<float> c(6, std::numeric_limits<float>::quiet_NaN());
  GemmBf16(GetParam(), 2, 3, 0, nullptr, 0, nullptr, 3, c.data(), 3, {});
  EXPECT_THAT(c, Each(0.0f));
  GemmBf16(GetParam(), 0, 3, 5, nullptr, 5, nullptr, 3, nullptr, 3, {});
}

// What is not finite reaches the elements that it belongs to, and no others: padding multiplies nothing with it.
TEST_P(GemmBf16Test, WhatIsNotFiniteStaysInItsRowAndColumn) {
  const int m = 20, n = 19, k = 37;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float value : {nan, infinity, -infinity, std::numeric_limits<float>::max()}) {
    std::vector<float> a(m * k, 1), b(k * n, 1), c(m * n);
    a[5 * k + 36] = value;
    GemmBf16(GetParam(), m, n, k, a.data(), k, b.data(), n, c.data(), n, {});
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        const float got = c[static_cast<size_t>(i * n + j)];
        if (i != 5) {
          EXPECT_EQ(got, k);
        } else if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(got));
        } else {
          // The largest float32 is infinite in bfloat16.
          EXPECT_EQ(got, value > 0 ? infinity : -infinity);
        }
      }
    }
  }
}

TEST_P(GemmBf16Test, DenormalsCountAsZero) {
  const float denormal = std::numeric_limits<float>::denorm_min() * 65536 * 16, tiny = 0x1p-100f;
  std::vector<float> a = {denormal, tiny}, b = {1, tiny}, c(1, -1);
  GemmBf16(GetParam(), 1, 1, 2, a.data(), 2, b.data(), 1, c.data(), 1, {});
  EXPECT_EQ(c[0], 0);
}

TEST_P(GemmBf16Test, ManyThreadsAtOnceGetTheSameBits) {
  const int m = 64, n = 100, k = 129;
  const std::vector<float> a = Numbers(1, m * k), b = Numbers(2, k * n);
  std::vector<float> expected(m * n);
  GemmBf16(GetParam(), m, n, k, a.data(), k, b.data(), n, expected.data(), n, {});
  std::vector<std::vector<float>> got(4, std::vector<float>(m * n));
  std::vector<std::thread> threads;
  for (std::vector<float>& c : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) GemmBf16(GetParam(), m, n, k, a.data(), k, b.data(), n, c.data(), n, {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(got, Each(expected));
}

INSTANTIATE_TEST_SUITE_P(Units, GemmBf16Test, ::testing::Values(Bf16Unit::kAvx512, Bf16Unit::kAmx),
                         [](const auto& info) { return info.param == Bf16Unit::kAmx ? "Amx" : "Avx512"; });

}  // namespace
}  // namespace weir
