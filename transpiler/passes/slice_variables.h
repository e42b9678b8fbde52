// Pass: cuts large parameters and their gradients into row blocks for the servers.
#ifndef WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_
#define WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Returns the number of elements of each block of a variable, in order. Fluid's rule: k = min(servers, elements /
// min_block_size), at least 1; blocks of ceil(elements / k) elements, from rank 2 on raised to whole rows. So a
// variable below 2 * min_block_size is one block, and rounding may leave fewer than k.
std::vector<int64_t> SliceElements(absl::Span<const int64_t> dims, int servers, int64_t min_block_size);

// Returns "fc_0.w.block1"; the variable's own name if it is in one block.
std::string BlockName(const std::string& variable, int block, int blocks);

// Parameter that is cut, with its gradient: variables of the program. `counts`: elements of its blocks, in order, whole
// rows each.
struct CutParameter {
  const v1::VarDesc* param = nullptr;
  const v1::VarDesc* grad = nullptr;
  std::vector<int64_t> counts;
};

// Returns the blocks of parameters, in their order, without servers, and declares in block 0 of `main` the variables of
// the pieces (block_of) of those that have more than one block, and of their gradients. InvalidArgument: a block with
// the name of another variable.
absl::StatusOr<std::vector<v1::PlacedBlock>> CutIntoBlocks(const Job& job, absl::Span<const CutParameter> parameters,
                                                           v1::ProgramDesc* main);

// Before: a program with update ops. After: ProgramDesc.plan with every block of every updated dense parameter, in
// order of the update ops, still without servers; and variables for the pieces (block_of) of those in more than one
// block, and of their gradients. slice_var_up: false leaves one block each. InvalidArgument: a parameter of unknown
// shape, or a block with the name of another variable. Returns false if there is a plan.
absl::StatusOr<bool> SliceVariables(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SLICE_VARIABLES_H_
