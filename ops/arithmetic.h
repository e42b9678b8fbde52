// Selects the vector instructions of matrix products, the only arithmetic in ops/ whose bits depend on them (everything
// else gives equal bits at every width, ops/vectorized.h). Selected once per process, before the first product.
//
// Processes that must produce equal bits must use one selection: it is part of the build fingerprint that they
// exchange.
#ifndef WEIR_OPS_ARITHMETIC_H_
#define WEIR_OPS_ARITHMETIC_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

// Fixes the selection. AUTO selects the best that the processor has: AVX-512 (F, BW, DQ, VL), else AVX2 with FMA, else
// SSE4.1. FailedPrecondition if the processor lacks the requested instructions, or if another selection is already in
// use. Thread-safe.
absl::Status SetArithmetic(v1::Train::Arithmetic arithmetic);

// Returns the selection that products use from now on: "avx512", "avx2" or "sse41". Resolves AUTO if nothing was set.
// Thread-safe.
std::string ResolvedArithmetic();

}  // namespace weir

#endif  // WEIR_OPS_ARITHMETIC_H_
