// Multiplies matrices whose factors are rounded to bfloat16 (ops/gemm.h with ProductPrecision::kBf16): row-major,
// float32 in memory, on the calling thread only.
//
// Factors are rounded while they are packed (ops/bf16_factor.h); denormal factors, products and sums count as 0. An
// element of the result is one chain of float32 sums over the pairs of k in their order, whatever m and n are, so no
// bit depends on how a product is cut:
//
//   kAvx512  VDPBF16PS: sum += a[2p + 1] * b[2p + 1], then sum += a[2p] * b[2p]
//   kAmx     TDPBF16PS: of each 32 elements of k the even and the odd products are added up apart, from 0; the sum of
//            the two is added to that of the elements before
//
// One core of an Intel Xeon with AMX (family 6, model 207, virtual), GFLOP/s of whole calls, packing included; forward,
// weight gradient, input gradient. There kAvx512 is slower than float32, of which a core does two vectors at a time: a
// VDPBF16PS takes two cycles, which is all that kAvx512 waits for.
//
//   shape            kAmx           kAvx512     FP32 (ops/gemm.h, AVX-512)
//   256 x 429 x 400  744, 641, 722  79, 81, 79  169, 161, 161
//   256 x 400 x 400  773, 670, 748  80, 82, 79  171, 163, 163
//   64 x 429 x 64    376, 358, 302  73, 74, 72  150, 156, 129
#ifndef WEIR_OPS_GEMM_BF16_H_
#define WEIR_OPS_GEMM_BF16_H_

#include <cstdint>

#include "ops/bf16_factor.h"
#include "ops/gemm_options.h"

namespace weir {

enum class Bf16Unit { kAvx512, kAmx };

// Returns whether this process can use the unit: the processor has it, and the system lets the process use its
// registers. Asks the system once.
bool HasBf16Unit(Bf16Unit unit);

// Computes Gemm with factors rounded to bfloat16; ignores options.precision. Requires: the machine has `unit`.
void GemmBf16(Bf16Unit unit, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc, const GemmOptions& options);

// Computes c = alpha * left * right + beta * c of factors that are packed; with beta 0, c need not be initialised. ldc
// is the length of the rows of c. Requires: the machine has `unit`, and the factors have one k.
void MultiplyBf16(Bf16Unit unit, const Bf16Factor& left, const Bf16Factor& right, float* c, int64_t ldc,
                  float alpha = 1, float beta = 0);

}  // namespace weir

#endif  // WEIR_OPS_GEMM_BF16_H_
