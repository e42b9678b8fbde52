// Writes files and publishes directories atomically: a name holds the whole content or does not exist. The free
// functions are thread-safe.
//
// A file is written under a temporary name in its own directory, synced (fsync) and renamed, and the directory is
// synced: after a crash at any moment the name holds the old content or the new one. Errors name the path and the
// system's reason, with the code that absl::ErrnoToStatus gives it (NotFound, PermissionDenied, ResourceExhausted,
// ...).
//
// With Links::kFollow, bytes for a name that leads to no regular file (/dev/null, /dev/stdout, a FIFO) are written
// directly into what is there, which is never replaced. With Links::kRefuse a rename replaces whatever has the name.
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

// Treatment of a symbolic link at the name of a file.
enum class Links {
  // The file that the link leads to is read or written, when written also a missing one. For names that users give.
  kFollow,
  // The link is no file: reading fails, writing replaces it. For names of ours in a directory in which others may
  // write.
  kRefuse,
};

// File being written. Used by one thread at a time. Destruction before Commit removes the temporary file.
class AtomicFile {
 public:
  // Opens a temporary file beside the file that `path` leads to. With Links::kFollow:
  // - a character device is opened itself, and so is a FIFO, whose reader is awaited for 10 s (FailedPrecondition);
  // - a descriptor of this process (/dev/stdout, /dev/fd/3) is duplicated, so that writing goes on at its place;
  // - InvalidArgument for a directory, a block device and a socket.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, Links links = Links::kFollow);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(std::string_view data);
  // Bytes appended so far.
  uint64_t size() const { return size_; }
  // Gives the content its final name. FailedPrecondition the second time. If only syncing the directory fails, returns
  // an error although the file has its final name.
  absl::Status Commit();

  // Returns true if Append writes into a device, a FIFO or a descriptor of this process: without Commit the bytes are
  // there all the same, and nothing can be changed afterwards.
  bool direct() const { return temporary_.empty(); }
  // Descriptor of the open file; -1 after Commit. Owned by this object.
  int fd() const { return fd_; }
  // The file that gets the content: what the links of `path` lead to.
  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

  const std::string path_;
  const std::string temporary_;  // empty: written directly
  int fd_;
  uint64_t size_ = 0;
};

absl::Status WriteFileAtomically(const std::string& path, std::string_view data, Links links = Links::kFollow);

// Returns the whole file; a pipe or a device is read to its end. ResourceExhausted if there are more than max_bytes, or
// more than 256 MiB from a pipe or a device; FailedPrecondition if nothing comes from one of these for 60 s.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes = uint64_t{1} << 40);
// Reads a regular file as ReadWholeFile does. Returns FailedPrecondition, without waiting, for a FIFO, a device or a
// socket, and with Links::kRefuse for a symbolic link.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t max_bytes, Links links = Links::kFollow);

// Opens a file for reading, like open(2), but never waits for the other end of a FIFO. Returns a descriptor that the
// caller closes, or -1 with errno set; ELOOP is a symbolic link that Links::kRefuse excludes. The descriptor may be
// O_NONBLOCK: poll before reading from what is no regular file.
int OpenForReading(const std::string& path, Links links = Links::kFollow);
// "a FIFO", "a directory", ..., for a message that refuses what is no regular file. `mode` as in struct stat.
std::string_view KindOfFile(uint32_t mode);

// Returns true if `path` is a pipe, a socket or a device, or its name begins with /dev/stdin, /dev/fd/ or /proc/. Other
// processes may find something else there, and it may be readable only once.
bool IsStream(const std::string& path);

// Creates a directory and all missing parents, as `mkdir -p` does.
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
