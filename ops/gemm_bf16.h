// Multiplies matrices whose factors are rounded to bfloat16 (ops/gemm.h with ProductPrecision::kBf16): row-major,
// float32 in memory, on the calling thread only.
//
// Factors are rounded to nearest, ties to even, while they are packed into tiles of 16 x 16 pairs; denormal factors,
// products and sums count as 0. An element of the result is one chain of float32 sums over the pairs of k in their
// order, whatever m and n are, so no bit depends on how a product is cut:
//
//   kAvx512  VDPBF16PS: sum += a[2p + 1] * b[2p + 1], then sum += a[2p] * b[2p]
//   kAmx     TDPBF16PS: of each 32 elements of k the even and the odd products are added up apart, from 0; the sum of
//            the two is added to that of the elements before
//
// One core of an Intel Xeon of 2023 (Sapphire Rapids), GFLOP/s of whole calls, packing included; forward, weight
// gradient, input gradient. There kAvx512 is slower than float32, of which a core does two vectors at a time.
//
//   shape            kAmx             kAvx512        FP32 (ops/gemm.h, AVX-512)
//   256 x 429 x 400  885, 1043, 952   106, 110, 108  206, 195, 195
//   256 x 400 x 400  885, 1195, 1055  107, 112, 109  186, 203, 210
//   64 x 429 x 64    486, 399, 479    99, 101, 101   171, 170, 163
#ifndef WEIR_OPS_GEMM_BF16_H_
#define WEIR_OPS_GEMM_BF16_H_

#include <cstdint>

#include "ops/gemm_options.h"

namespace weir {

enum class Bf16Unit { kAvx512, kAmx };

// Returns whether this process can use the unit: the processor has it, and the system lets the process use its
// registers. Asks the system once.
bool HasBf16Unit(Bf16Unit unit);

// Computes Gemm with factors rounded to bfloat16; ignores options.precision. Requires: the machine has `unit`.
void GemmBf16(Bf16Unit unit, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc, const GemmOptions& options);

}  // namespace weir

#endif  // WEIR_OPS_GEMM_BF16_H_
