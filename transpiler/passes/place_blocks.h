// Pass: gives every block its server and every table its shards.
#ifndef WEIR_TRANSPILER_PASSES_PLACE_BLOCKS_H_
#define WEIR_TRANSPILER_PASSES_PLACE_BLOCKS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: a plan with blocks (SliceVariables). After: every block has a server, by distribute.assign, else by
// distribute.custom_dispatcher or split_method, and plan.tables holds the distributed tables in order of their
// variables. Errors: a dispatcher that answers for another number of blocks or names a server that does not exist; a
// row of assign that names a parameter, block or server that does not exist, or that places something another row has
// placed. Returns false if every block already has a server.
absl::StatusOr<bool> PlaceBlocks(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_PLACE_BLOCKS_H_
