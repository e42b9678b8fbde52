// Pass: cuts large parameters and their gradients into row blocks for the servers.
#ifndef WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_
#define WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Returns the number of elements of each block of a variable, in order. Fluid's rule: k = min(servers, elements /
// min_block_size), at least 1; blocks of ceil(elements / k) elements, from rank 2 on raised to whole rows. So a
// variable below 2 * min_block_size is one block, and rounding may leave fewer than k.
std::vector<int64_t> SliceElements(absl::Span<const int64_t> dims, int servers, int64_t min_block_size);

// Returns "fc_0.w.block1"; the variable's own name if it is in one block.
std::string BlockName(const std::string& variable, int block, int blocks);

// Before: a program with update ops. After: ProgramDesc.plan with every block of every updated dense parameter, in
// order of the update ops, still without servers; and variables for the pieces (block_of) of those in more than one
// block, and of their gradients. slice_var_up: false leaves one block each. InvalidArgument: a parameter of unknown
// shape, or a block with the name of another variable. Returns false if there is a plan.
absl::StatusOr<bool> SliceVariables(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_
