// Checkpoints without a common directory (checkpoint.per_host): every host has a directory of its own, and what is
// called "step-..." in it is that host's part of a checkpoint: the MANIFEST of the whole, and the shards of the servers
// of this host. A checkpoint is complete when every server verifies its own shard under the same MANIFEST.
//
// Several processes of a host may share its directory: each of these calls may be repeated by any of them, and they
// wait for each other by an advisory lock on the directory (at most a minute; Unavailable names the directory).
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

// Makes `dir` and in it the temporary directory `temporary` (from BeginCheckpoint of the chief) if they are not there,
// and removes what dead runs left half-written.
absl::Status BeginPart(const std::string& dir, const std::string& temporary);

// Writes the sealed manifest (SealManifest) into the temporary directory and renames it to the step's name, unless
// another process of this host has done so. Files of other hosts are not looked for; those that are here must have
// their sizes. Called once more with the figures of an evaluation in the manifest, it replaces MANIFEST.
absl::Status PublishPart(const std::string& dir, const std::string& temporary, const v1::CheckpointManifest& manifest);

// Every part in `dir` whose manifest reads, belongs to `job` and names a file `own` that verifies; oldest first. `own`
// empty: every file that is here must verify. `refused`: the others, with reasons.
struct HostPart {
  int64_t step = 0;
  // ManifestIdentity: equal in all parts of a checkpoint.
  uint64_t manifest = 0;
};
struct HostParts {
  std::vector<HostPart> parts;
  std::vector<std::string> refused;
};
absl::StatusOr<HostParts> FindParts(const std::string& dir, std::string_view job, const std::string& own);

// SetAsideAndPrune and SetEarlierCheckpointsAside, where other processes of the host may do the same.
//
// Parts are pruned when every host has published `step` under the manifest whose xxh3-64 is `manifest`: until then an
// older one may be the newest that is complete. FailedPrecondition when this host has not: nothing is removed.
absl::Status PruneParts(const std::string& dir, int64_t step, uint64_t manifest, int keep_last, int keep_best);
absl::StatusOr<std::string> SetEarlierPartsAside(const std::string& dir, int64_t above = -1);

// Names of the shard files of the manifest that are not in `path`.
std::vector<std::string> MissingShards(const std::string& path, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_HOST_PART_H_
