// Look-ups that are joined with others are written where they are joined.
#ifndef WEIR_TRANSPILER_FUSE_LOOKUPS_H_
#define WEIR_TRANSPILER_FUSE_LOOKUPS_H_

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// Before: rows are prefetched, so look-ups are lookup_rows. After: where a concat of matrices along axis 1 joins
// look-ups, by themselves or through a reshape to [-1, slots width], all of it is one lookup_concat; and where a
// concat_grad has gradients that only a lookup_rows_grad reads, by themselves or through a reshape_grad, one
// lookup_concat_grad makes those of the rows. Before the reshape look-ups may be joined slot by slot, as those of an
// embedding by several variables of ids are. What was between them is gone. Both have the bits of what they replace
// (ops/lookup_concat.cc).
//
// A factorisation machine may read such look-ups, too: it reads them in the matrix then, which is joined before it, and
// adds its gradient to that of the matrix, where a sum of the two was.
//
// A look-up stays as it is when anything else reads it or what is made of it, and when it is a sequence; so do the
// other inputs of the concat; and all of them when train.cpu_ops names an operator that would be replaced. No errors;
// false when nothing is joined.
absl::StatusOr<bool> FuseLookups(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_FUSE_LOOKUPS_H_
