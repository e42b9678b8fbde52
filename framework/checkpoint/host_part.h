// Checkpoints without a common directory (checkpoint.per_host). Every host has its own directory; "step-..." in it is
// that host's part of a checkpoint: the MANIFEST of the whole checkpoint and the shards of this host's servers. A
// checkpoint is complete if every server verifies its own shard under one MANIFEST.
//
// Several processes of a host may share its directory: any of them may repeat any of these calls, and BeginPart,
// PublishPart, PruneParts and SetEarlierPartsAside exclude each other by an advisory lock on the directory (waiting at
// most a minute; Unavailable names the directory).
#ifndef WEIR_FRAMEWORK_CHECKPOINT_HOST_PART_H_
#define WEIR_FRAMEWORK_CHECKPOINT_HOST_PART_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Creates `dir` and in it the temporary directory `temporary` (from BeginCheckpoint of the chief) if missing, and
// removes unfinished checkpoints of dead runs.
absl::Status BeginPart(const std::string& dir, const std::string& temporary);

// Writes the sealed manifest (SealManifest) into the temporary directory and renames it to the step's name, unless
// another process of this host has done so. Files of other hosts may be missing; those present must have their sizes. A
// second call with the figures of an evaluation in the manifest replaces MANIFEST.
absl::Status PublishPart(const std::string& dir, const std::string& temporary, const v1::CheckpointManifest& manifest);

// Parts in `dir` whose manifest is readable, belongs to `job` and names a file `own` that verifies, oldest first; with
// an empty `own` every file present must verify. `refused`: the other parts, with reasons.
struct HostPart {
  int64_t step = 0;
  // ManifestIdentity, equal in all parts of a checkpoint.
  uint64_t manifest = 0;
};
struct HostParts {
  std::vector<HostPart> parts;
  std::vector<std::string> refused;
  // Job of the newest part that was refused because it belongs to another one; "" if there is none.
  std::string other_job = {};
};
absl::StatusOr<HostParts> FindParts(const std::string& dir, std::string_view job, const std::string& own);

// Call SetAsideAndPrune and SetEarlierCheckpointsAside under the lock of the directory.
//
// Call PruneParts when every host has published `step` with the manifest of ManifestIdentity `manifest`: until then an
// older checkpoint may be the newest complete one. FailedPrecondition if this host has not published it; nothing is
// removed then.
absl::Status PruneParts(const std::string& dir, int64_t step, uint64_t manifest, int keep_last, int keep_best);
absl::StatusOr<std::string> SetEarlierPartsAside(const std::string& dir, int64_t above = -1);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_HOST_PART_H_
