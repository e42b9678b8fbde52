// Manages a directory of checkpoints: "step-000000000120" holds MANIFEST and shard files.
//
// A checkpoint is written under a temporary name and renamed when all of it is on disk, so it is complete or absent,
// and may be read at any time. One job owns a directory; one process of it (the chief) begins, publishes and prunes.
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

// Largest format of MANIFEST that this build reads, and the one it writes. Shard files have a format of their own.
inline constexpr uint32_t kManifestFormat = 2;

// Returns "step-000000000120".
std::string StepDirectoryName(int64_t step);
// Returns the step of such a name; nullopt for any other name.
std::optional<int64_t> ParseStepDirectoryName(std::string_view name);

// Files of trainers in a step's directory.
inline constexpr char kStatisticsFile[] = "statistics";
inline constexpr char kResidualsFile[] = "residuals";
inline constexpr char kPlacesFile[] = "places";

struct CheckpointPath {
  int64_t step = 0;
  std::string name;
  std::string path;
};
// Returns the published checkpoints, oldest first, without verifying them. Empty if the directory does not exist.
// Errors of ListDirectory if it cannot be read.
absl::StatusOr<std::vector<CheckpointPath>> ListCheckpoints(const std::string& dir);

// Reads MANIFEST of a step's directory. DataLoss if it is missing, truncated or changed; FailedPrecondition for a newer
// format, and if it is no regular file. A manifest of an older format is returned in the present one.
absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& path);
// Reads the manifest and checks size and (unless sizes_only) checksum of every file.
absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(const std::string& path, bool sizes_only = false);

struct NewestCheckpoint {
  CheckpointPath found;
  v1::CheckpointManifest manifest;
  // Newer checkpoints that were refused, with reasons: "step-000000000140: shard-00001 has 511 bytes, the manifest says
  // 640".
  std::vector<std::string> refused;
};
// Finds the newest checkpoint that verifies (and, unless `job` is empty, belongs to that job). NotFound, with all
// reasons, if there is none.
absl::StatusOr<NewestCheckpoint> FindNewestComplete(const std::string& dir, std::string_view job);
// Opens a checkpoint. `path` is a directory of checkpoints (selects the newest complete one) or a step's directory (it
// must verify).
absl::StatusOr<NewestCheckpoint> OpenCheckpoint(const std::string& path);

// Creates `dir` and its parents if missing. Messages name the field checkpoint.dir.
absl::Status MakeCheckpointDirectory(const std::string& dir);
// Creates `dir` (parents too) and in it a new temporary directory for a step; removes unfinished checkpoints of dead
// runs. Returns the name of the temporary directory, which the servers need.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& dir, int64_t step);
// Writes MANIFEST into the temporary directory, syncs, renames it to the step's name, syncs `dir`. An existing
// checkpoint of that step is replaced in one rename. The sums of the digests are filled in from the shards. Returns the
// new path.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& dir, const std::string& temporary,
                                              v1::CheckpointManifest manifest);
// Fills in the format version and the sums of the shards' digests, which PublishCheckpoint does before it writes.
void SealManifest(v1::CheckpointManifest* manifest);
// Returns the bytes that follow the first line of a MANIFEST; its checksum covers them.
std::string ManifestText(const v1::CheckpointManifest& manifest);
// Returns a number that identifies a checkpoint across processes: xxh3-64 of ManifestText without the figures of an
// evaluation, which are added after the checkpoint has been published.
uint64_t ManifestIdentity(const v1::CheckpointManifest& manifest);
// Replaces MANIFEST in a step's directory, atomically. FailedPrecondition if the present one belongs to another
// checkpoint.
absl::Status ReplaceManifest(const std::string& path, const v1::CheckpointManifest& manifest);
// Returns the shards' files and the files of trainers. The pointers are valid as long as the manifest.
std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest);
// Returns the names of the shard files that only other hosts may have (checkpoint.per_host): those that are not in
// `path`. None where all hosts have one directory.
std::vector<std::string> MissingShards(const std::string& path, const v1::CheckpointManifest& manifest);
enum class MissingFiles {
  // A missing file is an error: its writer sees another directory.
  kRefuse,
  // checkpoint.per_host: a missing file is on another host (framework/checkpoint/host_part.h).
  kOfOtherHosts,
};
// Does PublishCheckpoint for a sealed manifest.
absl::StatusOr<std::string> PublishSealed(const std::string& dir, const std::string& temporary,
                                          const v1::CheckpointManifest& manifest, MissingFiles missing);
// Returns true for names of BeginCheckpoint: "tmp-step-000000000120-0123456789abcdef".
bool IsTemporaryName(std::string_view name);
// Returns a new name for a mark that is being written (framework/checkpoint/owner.h).
std::string TemporaryMarkName();
// Removes temporary directories and marks, and directories whose removal was interrupted, of runs that ended early. A
// name of another form belongs to the user. Logs once a directory that holds something else than files of checkpoints,
// and leaves it alone. Logs a directory that cannot be removed (a reader on a network file system has it open).
absl::Status RemoveHalfWritten(const std::string& dir);
// Removes a temporary directory that will not be published.
void AbandonCheckpoint(const std::string& dir, const std::string& temporary);

// Keeps the newest `keep_last` (at least 1) and, besides, the `keep_best` with the best evaluation (by
// checkpoint.best_by, else highest AUC, else lowest loss) and that of step `published`; removes the others. Incomplete
// checkpoints (MANIFEST not readable, a file missing or of another size) are left alone. Tries to remove all of them
// before it returns the first error.
absl::Status PruneCheckpoints(const std::string& dir, int keep_last, int keep_best,
                              MissingFiles missing = MissingFiles::kRefuse,
                              std::optional<int64_t> published = std::nullopt);

// Moves checkpoints of steps above `above` to "earlier-<n>" in `dir`, so that nothing is lost and no later resume takes
// them for its own: all of them when a run starts from scratch, those above its own steps when it has resumed from
// before them. Returns the new directory, or "" if there were none. If interrupted, it leaves the newest of them in
// place.
absl::StatusOr<std::string> SetEarlierCheckpointsAside(const std::string& dir, int64_t above = -1);

// Calls SetEarlierCheckpointsAside(dir, step) and PruneCheckpoints after the publication of `step`; its errors must not
// end a run. Setting checkpoints above `step` aside makes `step` the newest one, which PruneCheckpoints keeps. Logs the
// directory of those set aside.
absl::Status SetAsideAndPrune(const std::string& dir, int64_t step, int keep_last, int keep_best,
                              MissingFiles missing = MissingFiles::kRefuse);

// Proof that two processes see the same directory: one writes a probe, the other reads it.
struct DirectoryProbe {
  std::string name;   // file in the directory
  std::string token;  // its content: random, and whose it is
};
// Writes a probe. Also removes probes of processes of this host that have ended.
absl::StatusOr<DirectoryProbe> WriteProbe(const std::string& dir);
// Returns the token of a probe. FailedPrecondition if there is no such file here, InvalidArgument if `name` is not the
// name of a probe.
absl::StatusOr<std::string> ReadProbe(const std::string& dir, const std::string& name);
void RemoveProbe(const std::string& dir, const std::string& name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_H_
