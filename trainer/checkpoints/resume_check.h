// Checks whether a job may resume from a checkpoint: the settings that determine the order of examples and the bits of
// every step must be unchanged.
#ifndef WEIR_TRAINER_CHECKPOINTS_RESUME_CHECK_H_
#define WEIR_TRAINER_CHECKPOINTS_RESUME_CHECK_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "trainer/files/stream_rule.h"

namespace weir {

// The files of data.train, as a run finds them and its checkpoints keep them.
struct TrainFiles {
  std::string description;  // DataSet::Description
  // Returns whether a run on the files may have been cut by a version of the rule (CutsBy).
  std::function<bool(int scheme)> cuts_by = [](int scheme) { return scheme == kStreamScheme; };
};

// Compares the job with a checkpoint. FailedPrecondition names the first of these that differs, with both values: seed,
// lanes, scheme of placement, accumulate_steps, workers, whether the job is sync, geo or has async_tables, every
// setting of data but those of data.eval, the training files themselves (names may differ), and the rule that cuts them
// into streams, where this build does not know it. If the manifest has no such description, the patterns are compared
// instead. data.bad_line may change: the new run names a line that does not parse where it reads it again;
// so may data.follow.until. Everything else may change from run to run: servers, trainers, learning rates, deadlines,
// epochs, max_steps. Parameters, tables and optimizer states are compared when they are loaded. `path`: path of the
// checkpoint, for messages.
absl::Status CheckResumable(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job,
                            const v1::Plan& plan, const TrainFiles& train_files);

// Checks a checkpoint for a prediction. FailedPrecondition if it is of a geo job and `job` is not geo: it then holds no
// optimizer state, which the servers of `job` look for.
absl::Status CheckSameGeo(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_RESUME_CHECK_H_
