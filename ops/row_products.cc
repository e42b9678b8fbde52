#include "ops/row_products.h"

#include <algorithm>
#include <vector>

#include "glog/logging.h"

namespace weir {
namespace {

// With this many rows or more, oneDNN gives each the same bits (tests/ops/row_products_test.cc).
constexpr int64_t kFewRows = 16;

}  // namespace

void MultiplyEachRow(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                     float* c, int64_t ldc, const GemmOptions& options) {
  DCHECK(!options.transpose_a && options.beta == 0);
  if (rows == 0 || n == 0) return;
  if (rows >= kFewRows) return Gemm(rows, n, k, a, lda, b, ldb, c, ldc, options);
  static thread_local std::vector<float> padded;
  padded.assign(static_cast<size_t>(kFewRows * (k + n)), 0.0f);
  float* const product = padded.data() + kFewRows * k;
  for (int64_t r = 0; r < rows; ++r) std::copy_n(a + r * lda, k, padded.data() + r * k);
  Gemm(kFewRows, n, k, padded.data(), k, b, ldb, product, n, options);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(product + r * n, n, c + r * ldc);
}

}  // namespace weir
