// For each example: products of one vector with several vectors, and weighted sums of several vectors.
#ifndef WEIR_OPS_VECTOR_PRODUCTS_H_
#define WEIR_OPS_VECTOR_PRODUCTS_H_

#include <cstdint>

namespace weir {

// rows: number of examples; count: vectors y[b, t] of an example; width: floats of a vector.
struct VectorSizes {
  int64_t rows, count, width;
};

// out[b, t] = sum_w x[b, w] y[b, t, w], in the order of ops/fixed_sum.h.
void MultiplyVectors(const VectorSizes& n, const float* x, const float* y, float* out);
// out[b, w] = sum_t weight[b, t] y[b, t, w], added in ascending t; overwrites out. Requires: count >= 1.
void AddWeighed(const VectorSizes& n, const float* weight, const float* y, float* out);
// out[b, t, w] = weight[b, t] x[b, w]
void SpreadWeighed(const VectorSizes& n, const float* weight, const float* x, float* out);

}  // namespace weir

#endif  // WEIR_OPS_VECTOR_PRODUCTS_H_
