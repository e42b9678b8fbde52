// Pass: chooses the sparse parameters that trainers fetch by rows.
#ifndef WEIR_TRANSPILER_PASSES_CHOOSE_FETCH_H_
#define WEIR_TRANSPILER_PASSES_CHOOSE_FETCH_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: a plan with blocks (SliceVariables). After: plan.fetched_rows names, in placement order, the dense parameters
// with a gradient by rows of which trainers fetch only the rows of a step. table.fetch: WHOLE never, ROWS always; AUTO
// (also for a parameter of a brought program that is no table of the job) if the rows that a step can name, with their
// ids, take fewer bytes than the whole. Only parameters read by nothing but look-ups by ids of the data qualify; geo
// trainers keep whole copies. Errors: ROWS for a parameter that another op reads. Returns false if none is chosen or
// fetched_rows is already set.
absl::StatusOr<bool> ChooseFetch(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_CHOOSE_FETCH_H_
