// A job that makes predictions with a checkpoint: it gives the scores of the model that was trained, or is refused.
#ifndef WEIR_TRANSPILER_JOB_CHECKPOINT_JOB_H_
#define WEIR_TRANSPILER_JOB_CHECKPOINT_JOB_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transpiler/job/job.h"
#include "transpiler/job/model_differences.h"

namespace weir {

// Returns the settings by which `job` would give other scores than the model of a checkpoint whose job is `trained`:
// ModelDifferences, and variables that both models read and that only one of them leaves as they are, as the label or
// the weight of a loss, while the other one transforms them.
std::vector<SettingDifference> ScoreDifferences(const v1::JobConfig& trained, const Job& job);

// Returns "job.textproto:5:3: model.layer[2].mlp.activation was RELU in the checkpoint's job, and is TANH here".
std::string DifferenceText(const SettingDifference& difference, const Job& job);

// Returns FailedPrecondition if the job would give other scores than the model in the checkpoint at `path`, with the
// first difference, its place in the job's file and a way out. `job_text`: that of the checkpoint's manifest; where it
// is empty or cannot be read, and for the model of a job with a program file, whose contents no checkpoint has, there
// is nothing to compare, and *unknown says so; else it is "".
absl::Status CheckSameScores(const Job& job, std::string_view job_text, const std::string& path, std::string* unknown);

// Returns the job text in the newest checkpoint of a directory whose manifest can be read, or in that of a step's
// directory. Files other than the manifest are not looked at. NotFound: there is none.
// DataLoss: the manifest of the step cannot be read. FailedPrecondition: the checkpoint has no job text.
absl::StatusOr<std::string> JobTextOfCheckpoint(const std::string& path);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECKPOINT_JOB_H_
