// Pass for distribute.memory_optimize: variables of a lane that are not needed at the same time share a buffer.
#ifndef WEIR_TRANSPILER_PASSES_SHARE_BUFFERS_H_
#define WEIR_TRANSPILER_PASSES_SHARE_BUFFERS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Before: a trainer's main program, complete. After: the program has a share_buffers op at the front
// (framework/graph/shared_buffers.h). Server programs never have one.
//
// A variable lives from the op that writes it first to the last op that reads it. One that is sent, or cut into views
// that are sent, lives to the end of the step, because its bytes may leave at any time before. Variables of the data,
// of losses, of the whole step and of every kind other than dense keep memory of their own. Buffers are assigned in
// order of the ops: the smallest free one that is large enough, else the largest free one, else a new one. An op whose
// in-place rule allows it writes where it reads. Sizes are those of the largest lane of a full batch.
//
// Returns false without memory_optimize, and if the program already has the op. NotFound for an op type that is not
// registered; Internal if the buffers would change a result, which is a bug of this pass.
absl::StatusOr<bool> ShareBuffers(const Job& job, Programs* programs);

// Returns the bytes of a dense variable for `batch` examples; an unknown dimension other than the batch counts as one.
int64_t DenseBytes(const v1::VarDesc& var, int64_t batch);

// Returns the number of examples of the largest lane of a full batch.
int64_t LaneBatch(const v1::Plan& plan);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_SHARE_BUFFERS_H_
