#include "ops/gemm.h"

#include <thread>
#include <tuple>
#include <vector>

#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/arithmetic.h"

namespace weir {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> Numbers(uint64_t key, int64_t n) {
  std::vector<float> out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = UniformFloat(Philox(key, i, 0).v[0]) - 0.5f;
  return out;
}

class GemmShapes : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(GemmShapes, AgreesWithThePlainLoopInAllTranspositions) {
  const auto [m, n, k] = GetParam();
  const std::vector<float> a = Numbers(1, m * k), b = Numbers(2, k * n), c0 = Numbers(3, m * n);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      std::vector<float> c = c0;
      Gemm(m, n, k, a.data(), b.data(), c.data(), {.transpose_a = ta, .transpose_b = tb, .alpha = 2, .beta = 0.5});
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int p = 0; p < k; ++p) {
            sum += static_cast<double>(ta ? a[p * m + i] : a[i * k + p]) * (tb ? b[j * k + p] : b[p * n + j]);
          }
          ASSERT_NEAR(c[i * n + j], 2 * sum + 0.5 * c0[i * n + j], 1e-4)
              << i << ", " << j << " of " << m << "x" << n << "x" << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Some, GemmShapes,
                         ::testing::Values(std::tuple(1, 1, 1), std::tuple(3, 5, 7), std::tuple(17, 33, 65),
                                           std::tuple(64, 1, 50), std::tuple(1, 40, 20), std::tuple(50, 31, 429)));

TEST(GemmTest, AnEmptySumIsZeroWhateverWasThere) {
  std::vector<float> c(6, __builtin_nanf(""));
  Gemm(2, 3, 0, nullptr, nullptr, c.data(), {});
  EXPECT_THAT(c, Each(0.0f));
}

TEST(GemmTest, UninitialisedResultsDoNotMatter) {
  const std::vector<float> a = Numbers(1, 64), b = Numbers(2, 64);
  std::vector<float> c(64, __builtin_nanf("")), d(64, 0);
  Gemm(8, 8, 8, a.data(), b.data(), c.data(), {});
  Gemm(8, 8, 8, a.data(), b.data(), d.data(), {});
  EXPECT_EQ(c, d);
}

TEST(GemmTest, ManyThreadsAtOnceGetTheSameBits) {
  const int m = 64, n = 100, k = 129;
  const std::vector<float> a = Numbers(1, m * k), b = Numbers(2, k * n);
  std::vector<float> expected(m * n);
  Gemm(m, n, k, a.data(), b.data(), expected.data(), {});
  std::vector<std::vector<float>> got(4, std::vector<float>(m * n));
  std::vector<std::thread> threads;
  for (std::vector<float>& c : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) Gemm(m, n, k, a.data(), b.data(), c.data(), {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(got, Each(expected));
}

TEST(ArithmeticTest, AutoResolvesToWhatTheProcessorHasAndStays) {
  EXPECT_TRUE(SetArithmetic(v1::Train::AUTO).ok());
  const std::string resolved = ResolvedArithmetic();
  EXPECT_THAT(resolved, AnyOf("avx512", "avx2", "sse41"));
  EXPECT_TRUE(SetArithmetic(v1::Train::AUTO).ok());
  if (resolved == "avx512") {
    EXPECT_TRUE(SetArithmetic(v1::Train::AVX512).ok());
    const absl::Status other = SetArithmetic(v1::Train::AVX2);
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.message()), HasSubstr("arithmetic is already avx512"));
  } else {
    const absl::Status missing = SetArithmetic(v1::Train::AVX512);
    EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(missing.message()), HasSubstr("train.arithmetic is AVX512"));
  }
}

}  // namespace
}  // namespace weir
