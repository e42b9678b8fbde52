// Pass: makes look-ups that are joined write directly into the joined matrix.
#ifndef WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_
#define WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: rows are prefetched, so look-ups are lookup_rows. After: where a concat of matrices along axis 1 joins
// look-ups, directly or through a reshape to [-1, slots width], one lookup_concat replaces them; and where a
// concat_grad has gradients that only a lookup_rows_grad reads, directly or through a reshape_grad, one
// lookup_concat_grad makes those of the rows. Before the reshape look-ups may be joined slot by slot, as those of an
// embedding by several variables of ids are. The variables in between are removed. Both ops have the bits of the ops
// they replace (ops/lookup_concat.cc).
//
// A factorisation machine may read such look-ups, too: it then reads them in the matrix, which is joined before it, and
// adds its gradient to that of the matrix, in place of the sum of the two.
//
// A look-up is left alone if another op reads it or a variable made from it, and if it is a sequence; so are the other
// inputs of the concat. All are left alone if train.cpu_ops names an operator that would be replaced. No errors;
// returns false if nothing is joined.
absl::StatusOr<bool> FuseLookups(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_FUSE_LOOKUPS_H_
