// Checks dims from outside: dims of variables and attributes of a program that has not been verified.
#ifndef WEIR_FRAMEWORK_GRAPH_DIMS_H_
#define WEIR_FRAMEWORK_GRAPH_DIMS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Returns the product of dims, 1 for a scalar; -1 if one is negative or the product overflows. ElementCount requires
// valid dims.
int64_t KnownCount(absl::Span<const int64_t> dims);

// Returns OK if each dimension is a count, or -1 for the first, and the elements of one example (or row) are at most
// 2^48. Enforced for the builder, the verifier and the outputs of every shape rule, so arithmetic in shape rules does
// not overflow.
absl::Status CheckDims(const v1::VarDesc& var);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_DIMS_H_
