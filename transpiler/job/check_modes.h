// Checks that the modes in which trainers cooperate are compatible, and says what they mean for others.
#ifndef WEIR_TRANSPILER_JOB_CHECK_MODES_H_
#define WEIR_TRANSPILER_JOB_CHECK_MODES_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace weir {

struct Job;

// Checks distribute.async_mode, delay_compensation, async_tables, merge_hosts, train.accumulate_steps and workers:
// values in range, and none that contradicts another. InvalidArgument with file:line:column.
absl::Status CheckModes(const Job& job);

// Checks that the result of the job does not depend on the moments and the number of its trainers, as `transpile
// --verify` needs it. InvalidArgument with file:line:column.
absl::Status CheckVerifiable(const Job& job);

// Returns whether the trainers of a host merge what they exchange, as the plan says it: OFF for AUTO in a mode without
// merging.
v1::Plan::MergeHosts MergeHostsOf(const v1::Distribute& distribute);
// Returns the same of what they exchange with servers: OFF if these are in the trainers.
v1::Plan::MergeHosts MergeTowardsServersOf(const v1::Distribute& distribute);

// Returns whether checkpoints hold the state of optimizers.
bool SavesOptimizerState(const v1::Distribute& distribute);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_MODES_H_
