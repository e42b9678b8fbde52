// Place where a job's dense parameters are held: distribute.dense, and Fluid's names for it (distribute.mode).
#ifndef WEIR_TRANSPILER_JOB_CORNER_H_
#define WEIR_TRANSPILER_JOB_CORNER_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

struct Job;

// Returns true if trainers add dense gradients among themselves and every trainer holds all dense parameters.
bool AllReduces(const v1::Distribute& distribute);
// Returns true if besides every trainer updates a share of them only (update: SHARDED).
bool ShardsUpdates(const v1::Distribute& distribute);

// Returns true if servers hold the parameters, and every trainer updates a copy of its own (geo).
bool UpdatesCopies(const v1::Distribute& distribute);

// Return true if trainers give their dense gradients in 16 bits, and if those of the lanes are combined by adasum.
bool Compresses(const v1::Distribute& distribute);
bool UsesAdasum(const v1::Distribute& distribute);

// Sets what Fluid's name for a job without servers says beside `dense`: servers: 0, unless the job says more.
void ApplyMode(v1::Distribute* distribute);

// Checks dense, mode, update and all_reduce of the job. InvalidArgument names the setting that contradicts.
absl::Status CheckCorner(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CORNER_H_
