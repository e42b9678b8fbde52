// Pass: applies the registered rewrites, of which look-ups that are joined in one matrix have one.
#ifndef WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_
#define WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: rows are prefetched, so look-ups are lookup_rows. After: each rewrite of the linked operators has run
// (framework/graph/rewrite.h), in the order of their places. One is left out if train.cpu_ops names an operator that it
// would replace: a trainer on a device finds by these names what it is to run on the CPU. No errors; returns false if
// nothing was replaced.
absl::StatusOr<bool> FuseLookups(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_
