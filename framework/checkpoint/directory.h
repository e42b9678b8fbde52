// A directory of checkpoints: "step-000000000120" holds MANIFEST and shard files.
//
// A checkpoint is written under a temporary name and renamed when all of it is on disk, so it exists whole or not at
// all, and readers may look at any time. One job owns a directory; one process of it (the chief) begins, publishes and
// prunes.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_H_
#define WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Largest format that this build reads, and the one it writes.
inline constexpr uint32_t kCheckpointFormat = 1;

// "step-000000000120"
std::string StepDirectoryName(int64_t step);
// nullopt for anything else.
std::optional<int64_t> ParseStepDirectoryName(std::string_view name);

struct CheckpointPath {
  int64_t step = 0;
  std::string name;
  std::string path;
};
// Published ones, oldest first; not verified. Empty when the directory does not exist. Unavailable when it cannot be
// read.
absl::StatusOr<std::vector<CheckpointPath>> ListCheckpoints(const std::string& dir);

// MANIFEST of a step's directory. DataLoss when it is missing, cut or changed; FailedPrecondition for a newer format.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& path);
// Reads the manifest and, for every file, size and (unless sizes_only) checksum.
absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(const std::string& path, bool sizes_only = false);

struct NewestCheckpoint {
  CheckpointPath found;
  v1::CheckpointManifest manifest;
  // Newer ones that were refused, with reasons: "step-000000000140: shard-00001 has 511 bytes, the manifest says 640".
  std::vector<std::string> refused;
};
// The newest one that verifies (and, unless `job` is empty, belongs to that job). NotFound, with all reasons, when
// there is none.
absl::StatusOr<NewestCheckpoint> FindNewestComplete(const std::string& dir, std::string_view job);
// `path` is a directory of checkpoints (the newest complete one is taken) or a step's directory (it must verify).
absl::StatusOr<NewestCheckpoint> OpenCheckpoint(const std::string& path);

// Makes `dir` and its parents if they are not there. Messages name the field checkpoint.dir.
absl::Status MakeCheckpointDirectory(const std::string& dir);
// Makes `dir` (parents too) and in it a fresh temporary directory for a step; what dead runs left half-written is
// removed. Returns its name, to be given to the servers.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& dir, int64_t step);
// Writes MANIFEST into the temporary directory, syncs, renames it to the step's name, syncs `dir`. A checkpoint of the
// same step that is there already is replaced in one move. Sums of the digests are filled in from the shards. Returns
// the new path.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& dir, const std::string& temporary,
                                              v1::CheckpointManifest manifest);
// What it fills in before it writes: format, and the sums of the shards' digests.
void SealManifest(v1::CheckpointManifest* manifest);
// The bytes that follow the first line of a MANIFEST, over which its checksum goes.
std::string ManifestText(const v1::CheckpointManifest& manifest);
// The number by which processes tell that they mean the same checkpoint: xxh3-64 of the text without the figures of an
// evaluation, which are added when the checkpoint has been published.
uint64_t ManifestIdentity(const v1::CheckpointManifest& manifest);
// Replaces MANIFEST in a step's directory, atomically. FailedPrecondition: the one that is there is of another
// checkpoint.
absl::Status ReplaceManifest(const std::string& path, const v1::CheckpointManifest& manifest);
// Shards and files of trainers. Borrows.
std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest);
enum class MissingFiles {
  // An error: whoever wrote one sees another directory.
  kRefuse,
  // checkpoint.per_host: it lies on another host (framework/checkpoint/host_part.h).
  kOfOtherHosts,
};
// PublishCheckpoint for a sealed manifest.
absl::StatusOr<std::string> PublishSealed(const std::string& dir, const std::string& temporary,
                                          const v1::CheckpointManifest& manifest, MissingFiles missing);
// A name that BeginCheckpoint gives.
bool IsTemporaryName(std::string_view name);
// Removes temporary directories, and what was being removed, of runs that ended early. One that cannot be removed (a
// reader on a network file system has it open) is a line in the log.
absl::Status RemoveHalfWritten(const std::string& dir);
// Removes a temporary directory that will not be published.
void AbandonCheckpoint(const std::string& dir, const std::string& temporary);

// Keeps the newest `keep_last` (at least 1) and, besides, the `keep_best` with the best evaluation (highest AUC, else
// lowest loss) and that of step `published`; removes the others. Those without a readable manifest are left alone. One
// that cannot be removed keeps none of the others: the first error comes back when all have been tried.
absl::Status PruneCheckpoints(const std::string& dir, int keep_last, int keep_best,
                              MissingFiles missing = MissingFiles::kRefuse,
                              std::optional<int64_t> published = std::nullopt);

// Moves checkpoints of steps above `above` to "earlier-<n>" in `dir`, so that nothing is lost and no later resume
// mistakes them for its own: all of them when a run starts afresh, those above its own steps when it has gone on from
// before them. Returns where they went, or "" when there were none. Cut short, it leaves the newest of them where it
// was.
absl::StatusOr<std::string> SetEarlierCheckpointsAside(const std::string& dir, int64_t above = -1);

// Tidies up after the publication of `step`; its errors must not end a run. The highest number is that of the newest
// checkpoint once those above it are set aside, and then PruneCheckpoints keeps it. Logs where they went.
absl::Status SetAsideAndPrune(const std::string& dir, int64_t step, int keep_last, int keep_best,
                              MissingFiles missing = MissingFiles::kRefuse);

// Proof that two processes see the same directory: one writes a probe, the other reads it.
struct DirectoryProbe {
  std::string name;   // file in the directory
  std::string token;  // its content: random, and whose it is
};
// Removes those of processes of this host that have ended, too.
absl::StatusOr<DirectoryProbe> WriteProbe(const std::string& dir);
// FailedPrecondition when there is no such file here.
absl::StatusOr<std::string> ReadProbe(const std::string& dir, const std::string& name);
void RemoveProbe(const std::string& dir, const std::string& name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_H_
