#include "framework/checkpoint/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/process_identity.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "MANIFEST";
constexpr char kStepPrefix[] = "step-";
constexpr char kTemporaryPrefix[] = "tmp-";
constexpr char kTemporaryMarkPrefix[] = "tmp-owner-";
// Attempts of a reader while a writer publishes and prunes; 2 seconds in all.
constexpr int kLooks = 100;
constexpr std::chrono::milliseconds kBetweenLooks{20};
// Prefix of directories that are being removed, so that no reader takes one for a checkpoint.
constexpr char kTrashPrefix[] = "trash-";
constexpr char kProbePrefix[] = "probe-";
// Part of the names of files that are written before they are renamed (framework/base/atomic_file.h).
constexpr std::string_view kOfAtomicFile = ".tmp.";
constexpr uint64_t kMostProbeBytes = uint64_t{1} << 16;
// Some 300 bytes for each 8 MiB of a table: 30 TB.
constexpr uint64_t kMostManifestBytes = uint64_t{1} << 30;
// First line of a MANIFEST: a comment of the text format, with the checksum of all that follows.
constexpr char kManifestHead[] = "# weir checkpoint manifest, xxh3 ";

std::string RandomHex() {
  std::random_device random;
  const uint64_t bits = (uint64_t{random()} << 32) | random();
  return absl::StrFormat("%016x", bits);
}

// Returns true for what RandomHex returns. Marks once had fewer digits.
bool IsRandomHex(std::string_view text) {
  return !text.empty() && text.size() <= 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Takes a prefix, and "-<random hex>" at the end, off a name; nullopt if it does not have both.
std::optional<std::string_view> WithoutEnds(std::string_view name, std::string_view prefix) {
  const size_t dash = name.rfind('-');
  if (!name.starts_with(prefix) || dash == std::string_view::npos || dash < prefix.size()) return std::nullopt;
  if (!IsRandomHex(name.substr(dash + 1))) return std::nullopt;
  return name.substr(prefix.size(), dash - prefix.size());
}

// Returns true for names of MoveToTrash.
bool IsTrashName(std::string_view name) {
  const std::optional<std::string_view> of = WithoutEnds(name, kTrashPrefix);
  return of.has_value() && (ParseStepDirectoryName(*of).has_value() || IsTemporaryName(*of));
}

// Returns true for "<prefix><random hex>".
bool IsPrefixAndHex(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && IsRandomHex(name.substr(prefix.size()));
}

bool IsProbeName(std::string_view name) { return IsPrefixAndHex(name, kProbePrefix); }

// Empty when there is no such directory.
absl::StatusOr<std::vector<std::string>> Names(const std::string& dir) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  return names;
}

// Renames a directory that is to be removed, so that an interrupted removal leaves nothing that looks like a
// checkpoint. Returns its new path.
absl::StatusOr<std::string> MoveToTrash(const std::string& dir, const std::string& name) {
  const std::string from = absl::StrCat(dir, "/", name);
  std::string trash = absl::StrCat(dir, "/", kTrashPrefix, name, "-", RandomHex());
  if (::rename(from.c_str(), trash.c_str()) != 0) return FileError("cannot remove", from, errno);
  return trash;
}

absl::Status Remove(const std::string& dir, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string trash, MoveToTrash(dir, name));
  return RemoveTree(trash);
}

// Logs a failed removal instead of failing the save: left-over files do no harm, and the next save tries again.
void WarnIfLeft(const absl::Status& removed) {
  if (!removed.ok()) LOG(WARNING) << "not removed: " << removed.message();
}

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns true for the files that a run writes into the directory of a step, the unfinished ones of AtomicFile too.
bool IsFileOfCheckpoint(std::string_view name) {
  // Prefix of the name that NFS gives to a file that is removed while a process has it open.
  constexpr std::string_view kOfNfs = ".nfs";
  if (name.starts_with(kOfNfs)) {
    return name.find_first_not_of("0123456789abcdefABCDEF", kOfNfs.size()) == std::string_view::npos;
  }
  if (const size_t at = name.find(kOfAtomicFile); at != std::string_view::npos) {
    if (name.find_first_not_of("0123456789abcdef-", at + kOfAtomicFile.size()) != std::string_view::npos) return false;
    name = name.substr(0, at);
  }
  const std::string_view shard = "shard-";
  return name == kManifest || name == kStatisticsFile || name == kResidualsFile || name == kPlacesFile ||
         (name.starts_with(shard) && IsDigits(name.substr(shard.size())));
}

// Removes a directory of ours with the files of a checkpoint in it. Returns "" if it is gone, else why it is none:
// "is no directory", "holds 'notes.txt', which no run writes"; nothing is removed then. Follows no link.
absl::StatusOr<std::string> RemoveIfOurs(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::string();
  if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) return std::string("is no directory");
  if (fd < 0) return FileError("cannot remove", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd), [](DIR* d) { return ::closedir(d); });
  if (directory == nullptr) {
    const int error = errno;
    ::close(fd);
    return FileError("cannot list", path, error);
  }
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info;
    if (::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return FileError("cannot look at", absl::StrCat(path, "/", name), errno);
    }
    if (!S_ISREG(info.st_mode) || !IsFileOfCheckpoint(name))
      return absl::StrCat("holds '", name, "', which no run writes");
    names.push_back(name);
  }
  for (const std::string& name : names) {
    if (::unlinkat(fd, name.c_str(), 0) != 0 && errno != ENOENT) {
      return FileError("cannot remove", absl::StrCat(path, "/", name), errno);
    }
  }
  if (::unlinkat(AT_FDCWD, path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return FileError("cannot remove", path, errno);
  }
  return std::string();
}

// Returns true the first time that it is called with a path, so that a save does not repeat what another has logged.
bool IsFirstTime(const std::string& path) {
  static Mutex mu;
  static std::set<std::string>* const said = new std::set<std::string>();
  MutexLock lock(&mu);
  return said->insert(path).second;
}

void RemoveOrLeave(const std::string& dir, const std::string& name) {
  const std::string path = absl::StrCat(dir, "/", name);
  const absl::StatusOr<std::string> kept = RemoveIfOurs(path);
  if (!kept.ok()) return WarnIfLeft(kept.status());
  if (kept->empty()) {
    LOG(INFO) << "removed " << path << ", which was not finished";
  } else if (IsFirstTime(path)) {
    LOG(WARNING) << path << " has a name of a checkpoint that a run did not finish, but " << *kept
                 << "; it is left alone: remove it, or give it another name";
  }
}

// Checks that every file of the checkpoint is here: a missing one was written by a process that sees another directory.
absl::Status CheckAllThere(const std::string& dir, const v1::CheckpointManifest& manifest, MissingFiles missing) {
  for (const v1::CheckpointFile* expected : FilesOf(manifest)) {
    const std::string path = absl::StrCat(dir, "/", expected->name());
    const auto file = FileReader::Open(path);
    if (absl::IsNotFound(file.status())) {
      if (missing == MissingFiles::kOfOtherHosts) continue;
      return absl::FailedPreconditionError(absl::StrCat(path,
                                                        " was written, and is not here: the server that wrote it sees "
                                                        "another directory under this name. All processes must share "
                                                        "checkpoint.dir"));
    }
    RETURN_IF_ERROR(file.status());
    RETURN_IF_ERROR(CheckFile(**file, path, *expected, /*check_sum=*/false));
  }
  return SyncPath(dir);
}

// Steps of a run: sums and differences of them stay far from the ends of int64.
constexpr int64_t kMaxStep = int64_t{1} << 60;

absl::Status CheckSteps(const v1::CheckpointManifest& manifest, const std::string& file) {
  std::vector<int64_t> steps = {manifest.data().trainer_steps().begin(), manifest.data().trainer_steps().end()};
  steps.push_back(manifest.step());
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    steps.insert(steps.end(), shard.trainer_steps().begin(), shard.trainer_steps().end());
    steps.push_back(shard.table_steps());
  }
  for (const int64_t step : steps) {
    if (step < 0 || step > kMaxStep) {
      return absl::DataLossError(absl::StrCat(file, " speaks of step ", step, "; steps run from 0 to ", kMaxStep));
    }
  }
  return absl::OkStatus();
}

// A file that is named twice would be read as often, however large it is.
absl::Status CheckNames(const v1::CheckpointManifest& manifest, const std::string& file) {
  std::set<std::string_view> names;
  for (const v1::CheckpointFile* const each : FilesOf(manifest)) {
    if (!names.insert(each->name()).second) {
      return absl::DataLossError(absl::StrCat(file, " names the file '", each->name(), "' twice"));
    }
  }
  return absl::OkStatus();
}

std::string ManifestFile(const v1::CheckpointManifest& manifest) {
  const std::string body = ManifestText(manifest);
  return absl::StrCat(kManifestHead, DigestHex(StableHash(body)), "\n", body);
}

// Identity of a directory: a different one under an equal name is another checkpoint. Its change time is part of it,
// since the number of a removed one is given to a new one.
using DirectoryId = std::tuple<dev_t, ino_t, time_t, long>;
std::optional<DirectoryId> DirectoryIdOf(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return DirectoryId(found.st_dev, found.st_ino, found.st_ctim.tv_sec, found.st_ctim.tv_nsec);
}

// Returns true if a checkpoint is being written or removed. On a file system that cannot exchange two directories, a
// checkpoint that is replaced is absent for a moment.
bool HasHalfWritten(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return IsTemporaryName(name) || IsTrashName(name); });
}

// Removes the probes that killed servers have left. Only those of this host are known to be unused.
void RemoveProbesOfTheDead(const std::string& dir) {
  const absl::StatusOr<std::vector<std::string>> names = Names(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    // A server that was killed while it wrote one has left its temporary file.
    if (!IsProbeName(std::string_view(name).substr(0, name.find(kOfAtomicFile)))) continue;
    const absl::StatusOr<std::string> text =
        ReadRegularFile(absl::StrCat(dir, "/", name), kMostProbeBytes, Links::kRefuse);
    v1::DirectoryProof proof;
    if (text.ok() && ParseForeignText(*text, &proof) && HasEnded(proof.process())) RemoveProbe(dir, name);
  }
}

std::vector<CheckpointPath> StepsAmong(const std::string& dir, const std::vector<std::string>& names) {
  std::vector<CheckpointPath> found;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = ParseStepDirectoryName(name)) {
      found.push_back({.step = *step, .name = name, .path = absl::StrCat(dir, "/", name)});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointPath& a, const CheckpointPath& b) { return a.step < b.step; });
  return found;
}

absl::Status CheckFiles(const std::string& path, const v1::CheckpointManifest& manifest, bool check_sums,
                        MissingFiles missing) {
  for (const v1::CheckpointFile* expected : FilesOf(manifest)) {
    RETURN_IF_ERROR(CheckFileName(expected->name()));
    const std::string name = absl::StrCat(path, "/", expected->name());
    const auto file = FileReader::Open(name);
    if (absl::IsNotFound(file.status())) {
      if (missing == MissingFiles::kOfOtherHosts) continue;
      const bool elsewhere = !MissingShards(path, manifest).empty();
      return absl::DataLossError(absl::StrCat(
          name, " is missing",
          elsewhere ? ": the checkpoint was written with a directory per host; copy the shards of all hosts into one"
                    : ""));
    }
    RETURN_IF_ERROR(file.status());
    RETURN_IF_ERROR(CheckFile(**file, name, *expected, check_sums));
  }
  return absl::OkStatus();
}

// Moves the state of the trainers, which format 1 had as fields of the manifest, to where the present format has it.
void LiftToPresentFormat(v1::CheckpointManifest* manifest) {
  v1::TrainerState* const trainers = manifest->mutable_trainers();
  if (manifest->has_loss_scale()) trainers->mutable_loss_scale()->Swap(manifest->mutable_loss_scale());
  if (manifest->has_first_step_examples()) trainers->set_first_step_examples(manifest->first_step_examples());
  // The first builds did not write it: they had rule 1.
  trainers->set_stream_scheme(manifest->stream_scheme());
  if (manifest->has_early_stop()) trainers->mutable_early_stop()->Swap(manifest->mutable_early_stop());
  if (manifest->has_follow()) trainers->mutable_follow()->Swap(manifest->mutable_follow());
  manifest->clear_loss_scale();
  manifest->clear_first_step_examples();
  manifest->clear_stream_scheme();
  manifest->clear_early_stop();
  manifest->clear_follow();
  manifest->set_format_version(kManifestFormat);
}

absl::StatusOr<NewestCheckpoint> OpenStep(const std::string& path) {
  NewestCheckpoint opened;
  opened.found.path = path;
  opened.found.name = fs::path(path).lexically_normal().filename().string();
  ASSIGN_OR_RETURN(opened.manifest, VerifyCheckpoint(path));
  opened.found.step = opened.manifest.step();
  return opened;
}

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("%s%012d", kStepPrefix, step); }

std::optional<int64_t> ParseStepDirectoryName(std::string_view name) {
  int64_t step = 0;
  const std::string_view prefix = kStepPrefix;
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  const std::string digits(name.substr(prefix.size()));
  if (digits.size() < 12 || digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &step)) {
    return std::nullopt;
  }
  if (StepDirectoryName(step) != name) return std::nullopt;
  return step;
}

absl::StatusOr<std::vector<CheckpointPath>> ListCheckpoints(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(dir));
  return StepsAmong(dir, names);
}

absl::StatusOr<v1::CheckpointManifest> ReadManifest(const std::string& path) {
  const std::string file = absl::StrCat(path, "/", kManifest);
  // A link is followed, as for the other files of a checkpoint (FileReader::Open).
  absl::StatusOr<std::string> text = ReadRegularFile(file, kMostManifestBytes);
  if (!text.ok()) {
    return absl::IsNotFound(text.status()) ? absl::DataLossError(absl::StrCat(file, " is missing")) : text.status();
  }
  const size_t line = text->find('\n');
  const size_t head = sizeof(kManifestHead) - 1;
  if (line != head + 16 || text->compare(0, head, kManifestHead) != 0) {
    return absl::DataLossError(absl::StrCat(file, " does not begin with \"", kManifestHead, "...\""));
  }
  const std::string_view body = std::string_view(*text).substr(line + 1);
  if (DigestHex(StableHash(body)) != text->substr(head, 16)) {
    return absl::DataLossError(
        absl::StrCat(file, " does not have the checksum of its first line: it was cut or changed"));
  }
  v1::CheckpointManifest manifest;
  std::string error;
  // A newer format may have fields that this build does not know; it is refused by number below.
  if (!ParseForeignText(body, &manifest, &error)) return absl::DataLossError(absl::StrCat(file, ":", error));
  if (manifest.format_version() > kManifestFormat) {
    return absl::FailedPreconditionError(absl::StrCat(file, " has format ", manifest.format_version(),
                                                      "; this build reads up to ", kManifestFormat,
                                                      ". Use the build that wrote it: ", manifest.build()));
  }
  RETURN_IF_ERROR(CheckSteps(manifest, file));
  RETURN_IF_ERROR(CheckNames(manifest, file));
  if (manifest.format_version() < kManifestFormat) LiftToPresentFormat(&manifest);
  return manifest;
}

absl::StatusOr<v1::CheckpointManifest> VerifyCheckpoint(const std::string& path, bool sizes_only) {
  ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, ReadManifest(path));
  RETURN_IF_ERROR(CheckFiles(path, manifest, !sizes_only, MissingFiles::kRefuse));
  return manifest;
}

absl::StatusOr<NewestCheckpoint> FindNewestComplete(const std::string& dir, std::string_view job) {
  NewestCheckpoint newest;
  // A checkpoint may be pruned or replaced while it is read; another attempt then finds a newer one. Each failed
  // attempt has met one such change, so a writer that is idle costs at most one.
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    newest.refused.clear();
    ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(dir));
    const std::vector<CheckpointPath> found = StepsAmong(dir, names);
    bool changed = found.empty() && HasHalfWritten(names);
    for (auto it = found.rbegin(); it != found.rend(); ++it) {
      const std::optional<DirectoryId> before = DirectoryIdOf(it->path);
      absl::StatusOr<v1::CheckpointManifest> manifest = VerifyCheckpoint(it->path);
      if (manifest.ok() && !job.empty() && manifest->job() != job) {
        newest.refused.push_back(absl::StrCat(it->name, ": belongs to job '", manifest->job(), "', not to '",
                                              absl::string_view(job.data(), job.size()), "'"));
        continue;
      }
      if (manifest.ok()) {
        newest.found = *it;
        newest.manifest = *std::move(manifest);
        return newest;
      }
      if (!before || DirectoryIdOf(it->path) != before) changed = true;
      newest.refused.push_back(absl::StrCat(it->name, ": ", manifest.status().message()));
    }
    if (!changed) break;
  }
  return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", dir, newest.refused.empty() ? "" : ": ",
                                          absl::StrJoin(newest.refused, "; ")));
}

absl::StatusOr<NewestCheckpoint> OpenCheckpoint(const std::string& path) {
  if (PathExists(absl::StrCat(path, "/", kManifest)) ||
      ParseStepDirectoryName(fs::path(path).lexically_normal().filename().string()).has_value()) {
    return OpenStep(path);
  }
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return absl::NotFoundError(absl::StrCat(path, " is no directory"));
  return FindNewestComplete(path, "");
}

bool IsTemporaryName(std::string_view name) {
  const std::optional<std::string_view> of = WithoutEnds(name, kTemporaryPrefix);
  return of.has_value() && ParseStepDirectoryName(*of).has_value();
}

std::string TemporaryMarkName() { return absl::StrCat(kTemporaryMarkPrefix, RandomHex()); }

absl::Status RemoveHalfWritten(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(dir));
  for (const std::string& name : names) {
    if (IsTemporaryName(name) || IsTrashName(name)) {
      RemoveOrLeave(dir, name);
    } else if (IsPrefixAndHex(name, kTemporaryMarkPrefix)) {
      // The name alone goes: a link leads to what is not ours.
      const std::string path = absl::StrCat(dir, "/", name);
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) WarnIfLeft(FileError("cannot remove", path, errno));
    }
  }
  return absl::OkStatus();
}

absl::Status MakeCheckpointDirectory(const std::string& dir) {
  absl::Status made = CreateDirectories(dir);
  if (made.ok()) return made;
  std::error_code ignored;
  return absl::Status(made.code(),
                      absl::StrCat("checkpoint.dir: ", made.message(),
                                   fs::is_regular_file(dir, ignored) ? ": it is a file; name a directory" : ""));
}

absl::StatusOr<std::string> BeginCheckpoint(const std::string& dir, int64_t step) {
  RETURN_IF_ERROR(MakeCheckpointDirectory(dir));
  RETURN_IF_ERROR(RemoveHalfWritten(dir));
  const std::string name = absl::StrCat(kTemporaryPrefix, StepDirectoryName(step), "-", RandomHex());
  const std::string path = absl::StrCat(dir, "/", name);
  if (::mkdir(path.c_str(), 0755) != 0) return FileError("cannot make directory", path, errno);
  return name;
}

void SealManifest(v1::CheckpointManifest* manifest) {
  uint64_t values = 0, state = 0;
  for (const v1::CheckpointShard& shard : manifest->shards()) {
    values += shard.values_digest();
    state += shard.state_digest();
  }
  manifest->set_format_version(kManifestFormat);
  manifest->set_values_digest(values);
  manifest->set_state_digest(state);
}

std::string ManifestText(const v1::CheckpointManifest& manifest) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(manifest, &text));
  return text;
}

uint64_t ManifestIdentity(const v1::CheckpointManifest& manifest) {
  // Clears the fields that an evaluation adds after the checkpoint was written.
  v1::CheckpointManifest bare = manifest;
  bare.clear_eval_auc();
  bare.clear_eval_loss();
  bare.clear_eval_figure();
  bare.clear_eval_rank();
  bare.clear_eval_ranked_by();
  if (bare.has_trainers()) bare.mutable_trainers()->clear_early_stop();
  return StableHash(ManifestText(bare));
}

absl::Status ReplaceManifest(const std::string& path, const v1::CheckpointManifest& manifest) {
  ASSIGN_OR_RETURN(const v1::CheckpointManifest found, ReadManifest(path));
  if (ManifestIdentity(found) != ManifestIdentity(manifest)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has been replaced by another checkpoint"));
  }
  return WriteFileAtomically(absl::StrCat(path, "/", kManifest), ManifestFile(manifest), Links::kRefuse);
}

std::vector<std::string> MissingShards(const std::string& path, const v1::CheckpointManifest& manifest) {
  std::vector<std::string> missing;
  if (!manifest.per_host()) return missing;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    if (!PathExists(absl::StrCat(path, "/", shard.file().name()))) missing.push_back(shard.file().name());
  }
  return missing;
}

std::vector<const v1::CheckpointFile*> FilesOf(const v1::CheckpointManifest& manifest) {
  std::vector<const v1::CheckpointFile*> files;
  for (const v1::CheckpointShard& shard : manifest.shards()) files.push_back(&shard.file());
  for (const v1::CheckpointFile& extra : manifest.extra()) files.push_back(&extra);
  return files;
}

absl::StatusOr<std::string> PublishCheckpoint(const std::string& dir, const std::string& temporary,
                                              v1::CheckpointManifest manifest) {
  SealManifest(&manifest);
  return PublishSealed(dir, temporary, manifest, MissingFiles::kRefuse);
}

absl::StatusOr<std::string> PublishSealed(const std::string& dir, const std::string& temporary,
                                          const v1::CheckpointManifest& manifest, MissingFiles missing) {
  const std::string from = absl::StrCat(dir, "/", temporary);
  const std::string name = StepDirectoryName(manifest.step());
  const std::string to = absl::StrCat(dir, "/", name);
  RETURN_IF_ERROR(CheckAllThere(from, manifest, missing));
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(from, "/", kManifest), ManifestFile(manifest), Links::kRefuse));
  if (::rename(from.c_str(), to.c_str()) == 0) {
    RETURN_IF_ERROR(SyncPath(dir));
    return to;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) return FileError("cannot publish as", to, errno);
  // A checkpoint of this step exists (a run that was resumed from an earlier step, or ended at once). The new one takes
  // its name before the old one is removed.
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    RETURN_IF_ERROR(SyncPath(dir));
    WarnIfLeft(Remove(dir, temporary));
    return to;
  }
  // On a file system without exchange there is for a moment no checkpoint of this step, but never an incomplete one.
  ASSIGN_OR_RETURN(const std::string replaced, MoveToTrash(dir, name));
  if (::rename(from.c_str(), to.c_str()) != 0) return FileError("cannot publish as", to, errno);
  RETURN_IF_ERROR(SyncPath(dir));
  WarnIfLeft(RemoveTree(replaced));
  return to;
}

void AbandonCheckpoint(const std::string& dir, const std::string& temporary) { RemoveOrLeave(dir, temporary); }

absl::Status PruneCheckpoints(const std::string& dir, int keep_last, int keep_best, MissingFiles missing,
                              std::optional<int64_t> published) {
  struct Complete {
    std::string name;
    int64_t step;
    v1::CheckpointManifest manifest;
  };
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> found, ListCheckpoints(dir));
  std::vector<Complete> complete;
  for (const CheckpointPath& each : found) {
    absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(each.path);
    if (manifest.ok() && CheckFiles(each.path, *manifest, /*check_sums=*/false, missing).ok()) {
      complete.push_back({each.name, each.step, *std::move(manifest)});
    }
  }
  std::set<std::string> keep;
  if (published.has_value()) keep.insert(StepDirectoryName(*published));
  for (size_t i = 0; i < complete.size(); ++i) {
    if (complete.size() - i <= static_cast<size_t>(std::max(keep_last, 1))) keep.insert(complete[i].name);
  }
  std::vector<const Complete*> judged;
  for (const Complete& each : complete) {
    if (each.manifest.has_eval_auc() || each.manifest.has_eval_loss()) judged.push_back(&each);
  }
  // checkpoint.best_by may have been another before a resume: the newest says.
  const std::string ranked_by = judged.empty() ? "" : judged.back()->manifest.eval_ranked_by();
  std::sort(judged.begin(), judged.end(), [&](const Complete* a, const Complete* b) {
    const v1::CheckpointManifest& x = a->manifest;
    const v1::CheckpointManifest& y = b->manifest;
    // One that was judged by it is before others.
    const bool ranked_x = x.has_eval_rank() && x.eval_ranked_by() == ranked_by;
    const bool ranked_y = y.has_eval_rank() && y.eval_ranked_by() == ranked_by;
    if (ranked_x != ranked_y) return ranked_x;
    if (ranked_x && x.eval_rank() != y.eval_rank()) return x.eval_rank() > y.eval_rank();
    if (x.has_eval_auc() != y.has_eval_auc()) return x.has_eval_auc();
    if (x.has_eval_auc() && x.eval_auc() != y.eval_auc()) return x.eval_auc() > y.eval_auc();
    if (!x.has_eval_auc() && x.eval_loss() != y.eval_loss()) return x.eval_loss() < y.eval_loss();
    return a->step > b->step;
  });
  for (int i = 0; i < keep_best && i < static_cast<int>(judged.size()); ++i) keep.insert(judged[i]->name);
  absl::Status first_error;
  for (const Complete& each : complete) {
    if (keep.count(each.name) == 0) first_error.Update(Remove(dir, each.name));
  }
  return first_error;
}

absl::StatusOr<std::string> SetEarlierCheckpointsAside(const std::string& dir, int64_t above) {
  ASSIGN_OR_RETURN(std::vector<CheckpointPath> found, ListCheckpoints(dir));
  found.erase(
      std::remove_if(found.begin(), found.end(), [above](const CheckpointPath& each) { return each.step <= above; }),
      found.end());
  if (found.empty()) return std::string();
  std::string aside;
  for (int n = 1; aside.empty(); ++n) {
    const std::string path = absl::StrCat(dir, "/earlier-", n);
    if (::mkdir(path.c_str(), 0755) == 0) {
      aside = path;
    } else if (errno != EEXIST) {
      return FileError("cannot make directory", path, errno);
    }
  }
  // Set the newest aside last: a resume after a crash in between then finds the most advanced state.
  for (const CheckpointPath& each : found) {
    const std::string to = absl::StrCat(aside, "/", each.name);
    if (::rename(each.path.c_str(), to.c_str()) != 0) return FileError("cannot move to", to, errno);
  }
  RETURN_IF_ERROR(SyncPath(aside));
  RETURN_IF_ERROR(SyncPath(dir));
  return aside;
}

absl::Status SetAsideAndPrune(const std::string& dir, int64_t step, int keep_last, int keep_best,
                              MissingFiles missing) {
  const absl::StatusOr<std::string> aside = SetEarlierCheckpointsAside(dir, step);
  if (aside.ok() && !aside->empty()) {
    LOG(WARNING) << "checkpoints of steps above " << step << " in " << dir << " moved to " << *aside
                 << ": training has gone on from before them";
  }
  absl::Status status = aside.status();
  status.Update(PruneCheckpoints(dir, keep_last, keep_best, missing, step));
  return status;
}

absl::StatusOr<DirectoryProbe> WriteProbe(const std::string& dir) {
  RETURN_IF_ERROR(MakeCheckpointDirectory(dir));
  RemoveProbesOfTheDead(dir);
  v1::DirectoryProof proof;
  proof.set_token(absl::StrCat(RandomHex(), RandomHex()));
  *proof.mutable_process() = ThisProcess();
  DirectoryProbe probe{.name = absl::StrCat(kProbePrefix, RandomHex())};
  CHECK(google::protobuf::TextFormat::PrintToString(proof, &probe.token));
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(dir, "/", probe.name), probe.token, Links::kRefuse));
  return probe;
}

absl::StatusOr<std::string> ReadProbe(const std::string& dir, const std::string& name) {
  if (!IsProbeName(name)) return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no name of a probe"));
  absl::StatusOr<std::string> token = ReadRegularFile(absl::StrCat(dir, "/", name), kMostProbeBytes, Links::kRefuse);
  if (absl::IsNotFound(token.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint.dir ", dir, " is not the directory that server 0 sees: its file ", name,
        " is not here. All processes must share one directory; checkpoint.per_host: true permits one per host"));
  }
  return token;
}

void RemoveProbe(const std::string& dir, const std::string& name) { ::unlink(absl::StrCat(dir, "/", name).c_str()); }

}  // namespace weir
