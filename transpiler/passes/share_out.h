// The rule by which trainers share the updates of dense parameters out (distribute.update is SHARDED): how a parameter
// is cut, and which trainer gets which piece. In a file of its own, so that tests of trainers can use it without jobs.
#ifndef WEIR_TRANSPILER_PASSES_SHARE_OUT_H_
#define WEIR_TRANSPILER_PASSES_SHARE_OUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/plan.pb.h"

namespace weir {

// Elements of the least piece. A piece costs every trainer an op, a segment of an exchange, a part of a program and an
// entry of each checkpoint; below 4 KiB that is more than its bytes, which take 4 us at 1 GB/s. A parameter that stays
// whole is smaller than two such pieces, 2 % of the optimizer state of a model of 100,000 parameters.
inline constexpr int64_t kLeastPiece = 1024;

// Returns the number of elements of each piece of a parameter, in order: as many pieces as there are trainers, or as
// rows (elements of a vector), or as pieces of kLeastPiece; they differ by one row at most, longer ones first.
std::vector<int64_t> PieceElements(absl::Span<const int64_t> dims, int trainers);

// Gives every block of the plan its trainer. Each piece goes to the trainer that has least optimizer state so far (then
// least values), parameters with most bytes first, and no trainer gets two pieces of one parameter: so all trainers
// have a part of every large gradient. `state_bytes`: of the optimizer, by block. No parameter has more blocks than the
// plan has trainers.
void ShareOut(absl::Span<const int64_t> state_bytes, v1::Plan* plan);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SHARE_OUT_H_
