// Pass: shares the updates of dense parameters out among the trainers (distribute.update is SHARDED).
//
// Before: a plan whose dense blocks every trainer holds and updates. After: large parameters are cut into a block for
// each trainer, with variables for the pieces (block_of) and for those of their gradients, and every block names the
// trainer that updates it and has its optimizer state. With two trainers, fc.w [400, 400] and fc.b [400]:
//
//     block fc.b  server -1                     block fc.b         server -1  trainer 0
//     block fc.w  server -1              ->     block fc.w.block0  server -1  trainer 0   rows 0 to 199
//                                               block fc.w.block1  server -1  trainer 1   rows 200 to 399
//
// Changes nothing in other jobs, or if the blocks name trainers. Errors: those of CutIntoBlocks.
#ifndef WEIR_TRANSPILER_PASSES_SHARD_UPDATES_H_
#define WEIR_TRANSPILER_PASSES_SHARD_UPDATES_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Applies the rule of transpiler/passes/share_out.h.
absl::StatusOr<bool> ShardUpdates(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SHARD_UPDATES_H_
