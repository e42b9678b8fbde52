// Writes files and publishes directories atomically: a name holds the whole content or does not exist. The free
// functions are thread-safe.
//
// A file is written under a temporary name in its own directory, synced (fsync) and renamed, and the directory is
// synced: after a crash at any moment the name holds the old content or the new one. Errors name the path and the
// system's reason, with the code that absl::ErrnoToStatus gives it (NotFound, PermissionDenied, ResourceExhausted,
// ...).
#ifndef WEIR_FRAMEWORK_BASE_ATOMIC_FILE_H_
#define WEIR_FRAMEWORK_BASE_ATOMIC_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// File being written. Used by one thread at a time. Destruction before Commit removes the temporary file.
class AtomicFile {
 public:
  // Opens a temporary file beside `path`.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(std::string_view data);
  // Bytes appended so far.
  uint64_t size() const { return size_; }
  // Gives the content its final name. FailedPrecondition the second time.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

  const std::string path_;
  const std::string temporary_;
  int fd_;
  uint64_t size_ = 0;
};

absl::Status WriteFileAtomically(const std::string& path, std::string_view data);

// Returns the whole file. ResourceExhausted if it is larger than max_bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes = uint64_t{1} << 40);

// Like mkdir -p.
absl::Status CreateDirectories(const std::string& path);

// Creates a new directory `parent`/<prefix><unique> and returns its path. `parent` must exist.
absl::StatusOr<std::string> CreateUniqueDirectory(const std::string& parent, std::string_view prefix);

// Gives a finished directory its name in one step: syncs its files and the directory itself, renames it, and syncs the
// parent. AlreadyExists if `to` exists; `from` is then untouched. Both paths must be in one file system.
absl::Status PublishDirectory(const std::string& from, const std::string& to);

// Returns the names in a directory, without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Syncs a file or a directory to disk.
absl::Status SyncPath(const std::string& path);

// Removes a file, or a directory and everything below it. OK if there is none.
absl::Status RemoveTree(const std::string& path);

bool PathExists(const std::string& path);

// "a/b" + "c" -> "a/b/c"; an absolute second stays as it is.
std::string JoinPath(std::string_view directory, std::string_view name);
// "a/b/c" -> "a/b"; "c" -> ".".
std::string DirectoryOf(std::string_view path);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_ATOMIC_FILE_H_
