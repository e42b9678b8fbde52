// Pass: builds a job's model as a forward program, or takes the program the user has brought.
#ifndef WEIR_TRANSPILER_PASSES_BUILD_FORWARD_H_
#define WEIR_TRANSPILER_PASSES_BUILD_FORWARD_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: an empty main program. After: data variables that are read, parameters, tables, layers in order, losses and
// predictions, ProgramDesc.losses; or the contents of the job's `program` file, verified. Errors: unknown inputs and
// tables, shapes that do not fit (with the layer's place in the job), tables that nothing reads. Returns false if main
// already has blocks.
absl::StatusOr<bool> BuildForward(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_BUILD_FORWARD_H_
