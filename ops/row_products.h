// Product of matrices of which each row of a and c belongs to an example: the bits of an example's values do not depend
// on how many others stand beside it, which ops/gemm.h does not promise (a single row is a product with a vector there,
// with an order of sums of its own).
#ifndef WEIR_OPS_ROW_PRODUCTS_H_
#define WEIR_OPS_ROW_PRODUCTS_H_

#include <cstdint>

#include "ops/gemm.h"

namespace weir {

// c [rows, n] = a [rows, k] * op(b) [k, n]; lda, ldb and ldc are the lengths of their rows as stored. `options` may
// transpose b and set a precision. Thread-safe.
void MultiplyEachRow(int64_t rows, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                     float* c, int64_t ldc, const GemmOptions& options);

}  // namespace weir

#endif  // WEIR_OPS_ROW_PRODUCTS_H_
