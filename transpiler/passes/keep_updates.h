// Pass for trainers that update parameters of their own: copies in geo, all dense parameters with dense: ALL_REDUCE.
#ifndef WEIR_TRANSPILER_PASSES_KEEP_UPDATES_H_
#define WEIR_TRANSPILER_PASSES_KEEP_UPDATES_H_

#include "absl/status/statusor.h"
#include "proto/program.pb.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Before: a placed program with update ops. After: the main program also has, behind block 0, an optimize block for
// every parameter block that the trainer updates, and in geo for every table, as an owner of all of them would have it,
// with their states and learning rates among the variables of block 0; the startup program has a block 1 with their
// initial values. A trainer does not run these blocks with the rest of its program; its channel runs them, on values
// that it keeps (pserver/channels/geo_channel.h, pserver/replica/dense_replica.h). Returns false for other jobs, and if
// the program already has such blocks. InvalidArgument: a norm over dense parameters and tables with dense: ALL_REDUCE.
absl::StatusOr<bool> KeepUpdates(const Job& job, Programs* programs);

// Returns the program of a single machine whose updates the servers make. In geo they are replaced by one that adds the
// difference which a trainer sends as the gradient of a parameter: sgd with a learning rate of -1, w -= -1 * delta.
v1::ProgramDesc ProgramOfServers(const Job& job, const v1::ProgramDesc& single);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_KEEP_UPDATES_H_
