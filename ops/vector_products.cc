#include "ops/vector_products.h"

#include "ops/fixed_sum.h"
#include "ops/vectorized.h"

namespace weir {

WEIR_VECTORIZED void MultiplyVectors(const VectorSizes& n, const float* x, const float* y, float* out) {
  for (int64_t b = 0; b < n.rows; ++b) {
    const float* const own = x + b * n.width;
    for (int64_t t = b * n.count; t < (b + 1) * n.count; ++t) {
      const float* const each = y + t * n.width;
      out[t] = FixedSum(n.width, [=](int64_t w) { return own[w] * each[w]; });
    }
  }
}

WEIR_VECTORIZED void AddWeighed(const VectorSizes& n, const float* weight, const float* y, float* out) {
  for (int64_t b = 0; b < n.rows; ++b) {
    float* const sum = out + b * n.width;
    for (int64_t t = b * n.count; t < (b + 1) * n.count; ++t) {
      const float* const each = y + t * n.width;
      const float factor = weight[t];
      if (t == b * n.count) {
        WEIR_INDEPENDENT
        for (int64_t w = 0; w < n.width; ++w) sum[w] = factor * each[w];
      } else {
        WEIR_INDEPENDENT
        for (int64_t w = 0; w < n.width; ++w) sum[w] = sum[w] + factor * each[w];
      }
    }
  }
}

WEIR_VECTORIZED void SpreadWeighed(const VectorSizes& n, const float* weight, const float* x, float* out) {
  for (int64_t b = 0; b < n.rows; ++b) {
    const float* const own = x + b * n.width;
    for (int64_t t = b * n.count; t < (b + 1) * n.count; ++t) {
      float* const each = out + t * n.width;
      const float factor = weight[t];
      WEIR_INDEPENDENT
      for (int64_t w = 0; w < n.width; ++w) each[w] = factor * own[w];
    }
  }
}

}  // namespace weir
