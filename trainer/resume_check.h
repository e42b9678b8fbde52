// Whether a job may go on from a checkpoint: what the order of examples and the bits of every step depend on must be as it was.
#ifndef WEIR_TRAINER_RESUME_CHECK_H_
#define WEIR_TRAINER_RESUME_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace weir {

// FailedPrecondition names the first of seed, lanes, scheme of placement, batch_size, shuffling, drop_last, accumulate_steps and
// training files that differs, with both values. Everything else may change from run to run: servers, trainers, learning rates, deadlines, epochs,
// max_steps; parameters, tables and optimizer states are compared when they are loaded. `path`: of the checkpoint, for messages.
absl::Status CheckResumable(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job,
                            const v1::Plan& plan);

}  // namespace weir

#endif  // WEIR_TRAINER_RESUME_CHECK_H_
