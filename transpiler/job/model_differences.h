// Settings by which two jobs are different models, for a job that is used with the checkpoint of another.
#ifndef WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_
#define WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// Use of a checkpoint.
enum class CheckpointUse {
  // Predictions, with or without Weir. Settings that only training reads make no difference: losses but for the
  // variables that they take, dropout, momentum, and initializers other than those of tables, which give rows to
  // unknown ids.
  kPrediction,
  // Training that goes on: losses make a difference, too.
  kTraining,
  // Loading parameters, rows and the state of their optimizers: optimizers make a difference, too, though some of their
  // settings, such as learning rates, may change.
  kLoading,
};

struct SettingDifference {
  std::string path;     // "model.layer[2].mlp.activation"
  std::string was, is;  // "RELU", "TANH"; "not set"
};

// Returns the settings of layers, losses, tables, and of the variables that the data gives (reader, data.derived,
// data.dense, data.ids), with kLoading of optimizers, in which a job differs from the one that a checkpoint was trained
// with, in the order of proto/job.proto. Layers and tables are compared by name. Files, their layout (data.csv.header
// and its dialect), batches, and everything about the course of a run or the cluster make no difference.
std::vector<SettingDifference> ModelDifferences(const v1::JobConfig& trained, const v1::JobConfig& job,
                                                CheckpointUse use);

// Reads the job text of a checkpoint's manifest. InvalidArgument: another build has written it, with messages that this
// one does not know. Unknown fields are left out.
absl::StatusOr<v1::JobConfig> ReadTrainedJob(std::string_view job_text);

// Returns the first ModelDifferences and the number of the others, for a message: "model.layer[2].mlp.activation was
// RELU, and is TANH in this job". "" if there are none, or if `job_text`, that of a checkpoint's manifest, is empty or
// cannot be read.
std::string ModelDifferenceText(std::string_view job_text, const v1::JobConfig& job, CheckpointUse use);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_
