// Dims that come from outside: of variables and attributes of a program that nobody has verified yet.
#ifndef WEIR_FRAMEWORK_GRAPH_DIMS_H_
#define WEIR_FRAMEWORK_GRAPH_DIMS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Product of dims, 1 for a scalar; -1 when one is negative or the product overflows. Where ElementCount would not
// forgive.
int64_t KnownCount(absl::Span<const int64_t> dims);

// OK when each dimension is a count, or -1 for the first, and the elements of one example (or row) are at most 2^48.
// The builder, the verifier and the outputs of every shape rule are held to it, so arithmetic in shape rules does not
// overflow.
absl::Status CheckDims(const v1::VarDesc& var);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_DIMS_H_
