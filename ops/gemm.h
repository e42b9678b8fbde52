// Multiplies matrices: row-major, float32, on the calling thread only. Factors may be rounded to bfloat16 on the way
// (ops/gemm_bf16.h).
//
// Uses oneDNN's sgemm, held to the instructions of ops/arithmetic.h. Measured on one core of an Intel Xeon with AVX-512
// (GFLOP/s; forward, weight gradient, input gradient):
//
//   shape           oneDNN 2.6       OpenBLAS 0.3.21 (core found)  OpenBLAS held to Haswell
//   256 x 429 x 400  167, 160, 158    33, 32, 32                    80, 78, 77
//   256 x 400 x 400  169, 163, 161    32, 33, 32                    79, 78, 78
//   64 x 429 x 64    149, 157, 131    30, 29, 29
//
// OpenBLAS picks its kernels by processor model (it takes this virtual one for a Prescott) and can be held to another
// only through the environment, before it is loaded; oneDNN goes by instructions and is held to them by a call. Two
// threads calling at once get twice the rate of one from either.
#ifndef WEIR_OPS_GEMM_H_
#define WEIR_OPS_GEMM_H_

#include <cstdint>

#include "ops/gemm_options.h"

namespace weir {

// Computes c [m, n] = alpha * op(a) [m, k] * op(b) [k, n] + beta * c, where op transposes if the option is set. lda,
// ldb and ldc are the lengths of the rows as stored: a is [m, k] or, transposed, [k, m]. With beta 0, c need not be
// initialised. Sizes may be 0. The bits depend on sizes, operands and ResolvedArithmetic(precision) alone. Thread-safe.
void Gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, const GemmOptions& options);

// Computes the product of matrices without gaps between rows.
void Gemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const GemmOptions& options);

}  // namespace weir

#endif  // WEIR_OPS_GEMM_H_
