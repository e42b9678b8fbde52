// Which sparse parameters come to the trainers by rows.
#ifndef WEIR_TRANSPILER_CHOOSE_FETCH_H_
#define WEIR_TRANSPILER_CHOOSE_FETCH_H_

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// Before: a plan with blocks (SliceVariables). After: plan.fetched_rows names, in placement order, the dense parameters
// with a gradient by rows of which trainers fetch the rows of a step. table.fetch: WHOLE never, ROWS always, AUTO (and
// a parameter of a brought program that is no table of the job) when the rows that a step can name, with their ids, are
// fewer bytes than the whole. Only look-ups by ids of the data can be served so; geo trainers keep whole copies.
// Errors: ROWS for a parameter that something else reads. false when none is chosen or they are named already.
absl::StatusOr<bool> ChooseFetch(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_CHOOSE_FETCH_H_
