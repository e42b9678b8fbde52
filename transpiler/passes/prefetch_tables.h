// Pass: fetches all rows of a step at once, before any op reads them.
#ifndef WEIR_TRANSPILER_PASSES_PREFETCH_TABLES_H_
#define WEIR_TRANSPILER_PASSES_PREFETCH_TABLES_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Before: lookup_table (and its gradient) on tables of kind TABLE, or on parameters that plan.fetched_rows names.
// After: one prefetch of all of them at the front, giving "<table>@ROWS" and "<ids>@INDEX.<table>"; each look-up is a
// lookup_rows with equal attributes, each gradient the one that lookup_rows has registered, under the name that the
// gradient of the table had. The prefetch carries `heights` if a parameter is among them, whose rows are [0, height);
// `sequences` if ids are read only as sequences (the last so many of each example); and `ahead` with
// distribute.prefetch_rows. Errors: ids that an operator computes; prefetch_rows without such a table. Returns false if
// no operator reads such a table.
absl::StatusOr<bool> PrefetchTables(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_PREFETCH_TABLES_H_
