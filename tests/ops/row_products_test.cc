#include "ops/row_products.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return values;
}

TEST(RowProductsTest, ARowHasTheSameBitsAmongAnyNumberOfRows) {
  constexpr int64_t kMost = 600;
  for (const int64_t k : {1, 4, 16, 37, 64, 200, 1521}) {
    for (const int64_t n : {1, 3, 16, 50, 100, 192}) {
      const std::vector<float> a = Numbers(kMost * k, 1), b = Numbers(k * n, 2);
      for (const bool transpose : {false, true}) {
        SCOPED_TRACE(absl::StrCat("k ", k, " n ", n, transpose ? " transposed" : ""));
        const GemmOptions options = {.transpose_b = transpose};
        std::vector<float> all(kMost * n), some(kMost * n);
        MultiplyEachRow(kMost, n, k, a.data(), k, b.data(), transpose ? k : n, all.data(), n, options);
        for (const int64_t rows : {1, 2, 7, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 300, 512}) {
          for (const int64_t first : {0, 1, 13}) {
            MultiplyEachRow(rows, n, k, a.data() + first * k, k, b.data(), transpose ? k : n, some.data(), n, options);
            ASSERT_EQ(std::memcmp(some.data(), all.data() + first * n, sizeof(float) * static_cast<size_t>(rows * n)),
                      0)
                << rows << " rows from " << first;
          }
        }
      }
    }
  }
}

TEST(RowProductsTest, RowsMayHaveGaps) {
  const std::vector<float> a = {1, 2, -1, 3, 4, -1}, b = {1, 0, 9, 0, 1, 9};
  std::vector<float> c(8, 7);
  MultiplyEachRow(2, 2, 2, a.data(), 3, b.data(), 3, c.data(), 4, {});
  EXPECT_EQ(c, (std::vector<float>{1, 2, 7, 7, 3, 4, 7, 7}));
  MultiplyEachRow(0, 2, 2, nullptr, 3, b.data(), 3, nullptr, 4, {});
}

}  // namespace
}  // namespace weir
