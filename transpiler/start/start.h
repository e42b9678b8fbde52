// Beginning of a job with values of other jobs' checkpoints (JobConfig.start_from): matches parameters and tables by
// meaning and says what is taken from where, before anything runs. docs/evolve.md explains the rules.
#ifndef WEIR_TRANSPILER_START_START_H_
#define WEIR_TRANSPILER_START_START_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/start.pb.h"

namespace weir {

struct Job;

struct Start {
  // Statistics to take: of the checkpoint at this path, whose job reads its data so.
  struct Statistics {
    std::string checkpoint;
    v1::Data data;
  };
  std::vector<Statistics> statistics;
  // Carried out by every process on what it holds.
  v1::StartPlan plan;
  // Where the values come from, with the account of what is taken.
  v1::Lineage lineage;
};

// Reads the manifests of the checkpoints of job.config.start_from, and no values. Requires: there are some.
// InvalidArgument, with the place in the job and the lines to add: a pattern that matches nothing, names that are
// neither in both jobs nor said to be new or dropped, a new part that cannot be made silent. FailedPrecondition: a
// checkpoint that this job can take nothing from. NotFound, DataLoss: there is no checkpoint, or a damaged one.
absl::StatusOr<Start> PlanStart(const Job& job);

// Returns the account as text for the log and for `transpile --print=start`, a line for each name.
std::string StartText(const Start& start);

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_START_H_
