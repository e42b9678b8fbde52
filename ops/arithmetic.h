// Selects the vector instructions of matrix products, the only arithmetic in ops/ whose bits depend on them (everything
// else gives equal bits at every width, ops/vectorized.h). Selected once per process, before the first product.
//
// Processes that must produce equal bits must use one selection: it is part of the build fingerprint that they
// exchange.
#ifndef WEIR_OPS_ARITHMETIC_H_
#define WEIR_OPS_ARITHMETIC_H_

#include <string>

#include "absl/status/status.h"
#include "framework/runtime/product_precision.h"
#include "ops/gemm_bf16.h"
#include "proto/job.pb.h"

namespace weir {

// Returns the precision of a job's products on the CPU: kBf16 or kFp32.
ProductPrecision PrecisionOnCpu(const v1::Train& train);

// Fixes the selection for products in FP32, and in BF16 if `precision` says that the process makes such. AUTO selects
// the best that the processor has:
//
//   FP32   AVX-512 (F, BW, DQ, VL), else AVX2 with FMA, else SSE4.1
//   BF16   AMX_BF16, else AVX512_BF16; both with AVX512 for FP32
//
// FailedPrecondition if the processor lacks the requested instructions, or if another selection is already in use.
// Thread-safe.
absl::Status SetArithmetic(v1::Train::Arithmetic arithmetic, ProductPrecision precision = ProductPrecision::kFp32);

// Returns the selection that products use from now on: "avx512", "avx2" or "sse41", and in BF16 "avx512_bf16" or
// "amx_bf16". Resolves AUTO if nothing was set; CHECK-fails if the processor cannot multiply in BF16. Thread-safe.
std::string ResolvedArithmetic(ProductPrecision precision = ProductPrecision::kFp32);
Bf16Unit ResolvedBf16Unit();

}  // namespace weir

#endif  // WEIR_OPS_ARITHMETIC_H_
