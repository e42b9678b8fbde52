// Pass: sends gradients to their servers and removes updates from the trainer.
#ifndef WEIR_TRANSPILER_PASSES_SEND_GRADIENTS_H_
#define WEIR_TRANSPILER_PASSES_SEND_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: a placed program with update ops. After: behind the last op that writes a parameter's gradient is its send,
// after split_byref (dense) or split_selected_rows (rows) if the parameter is cut; update ops are gone; send_barrier
// ends the step. Errors: a learning rate schedule, which servers do not run. Returns false if there is a send_barrier.
absl::StatusOr<bool> SendGradients(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SEND_GRADIENTS_H_
