// Merging of what the trainers of one host exchange with servers: distribute.merge_hosts.
#ifndef WEIR_TRANSPILER_JOB_MERGE_HOSTS_H_
#define WEIR_TRANSPILER_JOB_MERGE_HOSTS_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace weir {

struct Job;

// Returns whether the trainers of a host merge, as its plan says it: OFF for AUTO in a mode without merging.
v1::Plan::MergeHosts MergeHostsOf(const v1::Distribute& distribute);

// Checks that the mode of a job with merge_hosts: true permits it. InvalidArgument with file:line:column.
absl::Status CheckMergeHosts(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_MERGE_HOSTS_H_
