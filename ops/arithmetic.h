// Which vector instructions products of matrices use: the only arithmetic here whose bits depend on them (everything
// else gives the same bits at every width, ops/vectorized.h). Chosen once for the process, before the first product.
//
// Processes that add up to the same bits must agree on it: it is part of the build fingerprint that they exchange.
#ifndef WEIR_OPS_ARITHMETIC_H_
#define WEIR_OPS_ARITHMETIC_H_

#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

// Pins the choice. AUTO takes the best that the processor has: AVX-512 (F, BW, DQ, VL), else AVX2 with FMA, else
// SSE4.1. FailedPrecondition when the processor lacks what is asked for, or when another choice is already in use.
// Thread-safe.
absl::Status SetArithmetic(v1::Train::Arithmetic arithmetic);

// "avx512", "avx2" or "sse41": what products use from now on. Resolves AUTO if nothing was set. Thread-safe.
std::string ResolvedArithmetic();

}  // namespace weir

#endif  // WEIR_OPS_ARITHMETIC_H_
