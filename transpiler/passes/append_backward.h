// Pass: adds the gradients of every trainable parameter.
#ifndef WEIR_TRANSPILER_PASSES_APPEND_BACKWARD_H_
#define WEIR_TRANSPILER_PASSES_APPEND_BACKWARD_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: forward and losses. After: backward behind them (framework/graph/autodiff.h). Errors: a loss of a form that
// has no gradient per sample; a trainable parameter that no loss depends on, at the place of its layer or table.
// Returns false if the program already has backward ops.
absl::StatusOr<bool> AppendGradients(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_APPEND_BACKWARD_H_
