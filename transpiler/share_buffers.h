// distribute.memory_optimize: variables of a lane that are not needed at the same time share a buffer.
#ifndef WEIR_TRANSPILER_SHARE_BUFFERS_H_
#define WEIR_TRANSPILER_SHARE_BUFFERS_H_

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// Before: a trainer's main program, complete. After: the same with a share_buffers op at the front
// (framework/graph/shared_buffers.h). Servers have no such thing.
//
// A variable lives from the op that writes it first to the last op that reads it. One that is sent, or cut into views
// that are, lives to the end of the step: its bytes may leave at any time before. Variables of the data, of losses, of
// the whole step and of every other kind than dense keep memory of their own. Buffers are dealt in order of the ops: of
// those that are free the smallest that is large enough, else the largest, else a new one; an op whose in-place rule
// allows it writes where it reads. Sizes are those of the largest lane of a full batch.
//
// false without memory_optimize, and when the program says already what is shared.
absl::StatusOr<bool> ShareBuffers(const Job& job, Programs* programs);

// Bytes of a dense variable on `batch` examples; what is unknown beside the batch counts as one.
int64_t DenseBytes(const v1::VarDesc& var, int64_t batch);

// Examples of the largest lane of a full batch.
int64_t LaneBatch(const v1::Plan& plan);

}  // namespace weir

#endif  // WEIR_TRANSPILER_SHARE_BUFFERS_H_
