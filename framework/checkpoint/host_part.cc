#include "framework/checkpoint/host_part.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/directory_lock.h"
#include "framework/checkpoint/file.h"

namespace weir {
namespace {

absl::Status CheckTemporaryName(const std::string& name) {
  RETURN_IF_ERROR(CheckFileName(name));
  if (IsTemporaryName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no name of a checkpoint that is being written"));
}

absl::Status CheckPart(const std::string& path, const v1::CheckpointManifest& manifest, const std::string& own) {
  bool owned = own.empty();
  for (const v1::CheckpointFile* expected : FilesOf(manifest)) {
    if (!own.empty() && expected->name() != own) continue;
    owned = true;
    RETURN_IF_ERROR(CheckFileName(expected->name()));
    const std::string file = absl::StrCat(path, "/", expected->name());
    const auto reader = FileReader::Open(file);
    if (absl::IsNotFound(reader.status())) {
      if (own.empty()) continue;
      return absl::DataLossError(absl::StrCat(file, " is missing"));
    }
    RETURN_IF_ERROR(reader.status());
    RETURN_IF_ERROR(CheckFile(**reader, file, *expected, /*check_sum=*/true));
  }
  return owned ? absl::OkStatus()
               : absl::NotFoundError(absl::StrCat("has no ", own, ": it was written by fewer servers"));
}

}  // namespace

absl::Status BeginPart(const std::string& dir, const std::string& temporary) {
  RETURN_IF_ERROR(CheckTemporaryName(temporary));
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Take(dir));
  const std::string path = absl::StrCat(dir, "/", temporary);
  if (PathExists(path)) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveHalfWritten(dir));
  if (::mkdir(path.c_str(), 0755) != 0) return FileError("cannot make directory", path, errno);
  return absl::OkStatus();
}

absl::Status PublishPart(const std::string& dir, const std::string& temporary, const v1::CheckpointManifest& manifest) {
  RETURN_IF_ERROR(CheckTemporaryName(temporary));
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Take(dir));
  if (PathExists(absl::StrCat(dir, "/", temporary))) {
    return PublishSealed(dir, temporary, manifest, MissingFiles::kOfOtherHosts).status();
  }
  const std::string path = absl::StrCat(dir, "/", StepDirectoryName(manifest.step()));
  const absl::StatusOr<v1::CheckpointManifest> found = ReadManifest(path);
  if (found.ok() && ManifestIdentity(*found) == ManifestIdentity(manifest)) {
    return ManifestText(*found) == ManifestText(manifest) ? absl::OkStatus() : ReplaceManifest(path, manifest);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(dir, "/", temporary, " is gone and ", path, " is not the checkpoint that was written in it"));
}

absl::StatusOr<HostParts> FindParts(const std::string& dir, std::string_view job, const std::string& own) {
  HostParts found;
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(dir));
  for (const CheckpointPath& each : all) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(each.path);
    absl::Status status = manifest.status();
    if (status.ok() && manifest->job() != job) {
      found.other_job = manifest->job();
      status = absl::FailedPreconditionError(absl::StrCat("belongs to job '", manifest->job(), "'"));
    }
    if (status.ok()) status = CheckPart(each.path, *manifest, own);
    if (status.ok()) {
      found.parts.push_back({.step = manifest->step(), .manifest = ManifestIdentity(*manifest)});
    } else {
      found.refused.push_back(absl::StrCat(each.name, ": ", status.message()));
    }
  }
  return found;
}

absl::Status PruneParts(const std::string& dir, int64_t step, uint64_t manifest, int keep_last, int keep_best) {
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Take(dir));
  const std::string path = absl::StrCat(dir, "/", StepDirectoryName(step));
  const absl::StatusOr<v1::CheckpointManifest> found = ReadManifest(path);
  if (!found.ok() || ManifestIdentity(*found) != manifest) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, found.ok() ? " is another checkpoint than the one that was published" : " is not published",
                     ": nothing in ", dir, " is pruned"));
  }
  return SetAsideAndPrune(dir, step, keep_last, keep_best, MissingFiles::kOfOtherHosts);
}

absl::StatusOr<std::string> SetEarlierPartsAside(const std::string& dir, int64_t above) {
  ASSIGN_OR_RETURN(const auto lock, DirectoryLock::Take(dir));
  return SetEarlierCheckpointsAside(dir, above);
}

}  // namespace weir
