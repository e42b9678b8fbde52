// Whether a job may go on from a checkpoint: what the order of examples and the bits of every step depend on must be as
// it was.
#ifndef WEIR_TRAINER_RESUME_CHECK_H_
#define WEIR_TRAINER_RESUME_CHECK_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace weir {

// FailedPrecondition names the first of these that differs, with both values: seed, lanes, scheme of placement,
// accumulate_steps, workers, whether the job is sync, geo or has async_tables, every setting of data but those of
// data.eval, and the training files themselves, by `train_data` (DataSet::Description; names may differ). A manifest
// without that has the patterns compared. data.bad_line may change: every line up to the place where the run goes on
// parses, or the new run names it. Everything else may change from run to run: servers, trainers, learning rates,
// deadlines, epochs, max_steps; parameters, tables and optimizer states are compared when they are loaded. `path`: of
// the checkpoint, for messages.
absl::Status CheckResumable(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job,
                            const v1::Plan& plan, std::string_view train_data);

// For a prediction: checkpoints of geo hold no optimizer state, for which the servers of any other job look.
// FailedPrecondition says so.
absl::Status CheckSameGeo(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRAINER_RESUME_CHECK_H_
