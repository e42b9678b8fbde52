// Settings by which two jobs are different models, for a job that is used with the checkpoint of another.
#ifndef WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_
#define WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "proto/job.pb.h"

namespace weir {

// Use of a checkpoint.
enum class CheckpointUse {
  // Predictions, with or without Weir: fields that decide SCORES. Variables of the data that neither a layer nor the
  // prediction of a loss reads make no difference, nor does the model where one of the jobs has a program file instead.
  kPrediction,
  // Training that goes on: fields that decide TRAINING make a difference, too.
  kTraining,
  // Loading parameters, rows and the state of their optimizers: fields that decide STATE make a difference, too, though
  // some of them, such as learning rates, may change.
  kLoading,
};

struct SettingDifference {
  std::string path;     // "model.layer[2].mlp.activation"
  std::string was, is;  // "RELU", "TANH"; "not set"
  // Path by which to find the place in the file of the job that is compared: that of the setting or, for an element
  // that this job does not have, of what it would be in.
  std::string place;
};

// Returns the settings in which a job differs from the one that a checkpoint was trained with, in the order of
// proto/job.proto. Which settings make a difference, and which elements are compared with each other, is written at the
// fields (proto/agreement.proto): layers, tables and derived variables are compared by name, columns by their variable
// and the order in it.
std::vector<SettingDifference> ModelDifferences(const v1::JobConfig& trained, const v1::JobConfig& job,
                                                CheckpointUse use);

// Returns the names of the variables of the data that layers and predictions read, among other texts of the model.
std::set<std::string> VariablesRead(const v1::JobConfig& job);

// Returns the first ModelDifferences and the number of the others, for a message: "model.layer[2].mlp.activation was
// RELU, and is TANH in this job". "" if there are none, or if `job_text`, that of a checkpoint's manifest, is empty or
// cannot be read.
std::string ModelDifferenceText(std::string_view job_text, const v1::JobConfig& job, CheckpointUse use);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_MODEL_DIFFERENCES_H_
