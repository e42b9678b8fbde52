#include "ops/row_statistics.h"

#include <cmath>

#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void SumSquares(int64_t rows, int64_t n, const float* mean, const float* x, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  for (int64_t r = 0; r < rows; ++r, x += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
  }
}

}  // namespace

WEIR_VECTORIZED void SumColumns(int64_t rows, int64_t n, const float* x, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  for (int64_t r = 0; r < rows; ++r, x += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
  }
}

void MeasureColumns(int64_t rows, int64_t n, const float* x, float* mean, float* variance) {
  const float count = static_cast<float>(rows == 0 ? 1 : rows);
  SumColumns(rows, n, x, mean);
  for (int64_t i = 0; i < n; ++i) mean[i] /= count;
  SumSquares(rows, n, mean, x, variance);
  for (int64_t i = 0; i < n; ++i) variance[i] /= count;
}

float InverseDeviation(float variance, float epsilon) { return 1.0f / std::sqrt(variance + epsilon); }

}  // namespace weir
