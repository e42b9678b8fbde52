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

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Elements of the least piece. A piece costs every trainer an op, a segment of an exchange, a part of a program and an
// entry of each checkpoint; below 4 KiB that is more than its bytes, which take 4 us at 1 GB/s. What stays whole is
// less than two such pieces, 2 % of the optimizer state of a model of 100,000 parameters.
inline constexpr int64_t kLeastPiece = 1024;

// Returns the number of elements of each piece of a parameter, in order: as many pieces as there are trainers, or as
// rows (elements of a vector), or as pieces of kLeastPiece; they differ by one row at most, longer ones first.
std::vector<int64_t> PieceElements(absl::Span<const int64_t> dims, int trainers);

// Each piece goes to the trainer that has least optimizer state so far (then least values), parameters with most bytes
// first, and no trainer gets two pieces of one parameter: so all trainers have a part of every large gradient.
absl::StatusOr<bool> ShardUpdates(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SHARD_UPDATES_H_
