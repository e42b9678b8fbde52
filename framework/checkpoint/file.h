// Files for checkpoints: written sequentially with a checksum, read in pieces, with errors that name the file.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_FILE_H_
#define WEIR_FRAMEWORK_CHECKPOINT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/atomic_file.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Begin of a shard file and of a row file, and how their parts are aligned.
inline constexpr int64_t kFileAlign = 64;
struct FileHeader {
  char magic[8];
  uint32_t format;
  char zeros[52];
};
static_assert(sizeof(FileHeader) == kFileAlign);
constexpr int64_t AlignedInFile(int64_t n) { return (n + kFileAlign - 1) / kFileAlign * kFileAlign; }

// "<what> <path>: No space left on device". NotFound for a path that does not exist; Unavailable for errors that a
// retry may not meet (the device, the file server, another process that has the file open); else FailedPrecondition,
// which the user must repair: the disk is full or read-only, a file is in the way, a permission is missing.
absl::Status FileError(std::string_view what, std::string_view path, int error);

// Appends to a new file through a buffer and computes its checksum. Not thread-safe. The destructor removes the file
// unless it was closed.
class FileWriter {
 public:
  // Opens a file of a checkpoint, and empties it if it exists. FailedPrecondition if the name is a symbolic link or of
  // something else that is no regular file.
  static absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path);
  // Opens a file that a user named, as AtomicFile does: Close gives it its name. InvalidArgument if it is to be
  // patched, and is a pipe or a descriptor of this process.
  static absl::StatusOr<std::unique_ptr<FileWriter>> CreateAtomically(const std::string& path, bool patched);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  absl::Status Append(const void* data, size_t size);
  // Appends zero bytes up to the next multiple of `alignment`.
  absl::Status AlignTo(size_t alignment);
  // Overwrites bytes already written; the checksum no longer holds after that.
  absl::Status Patch(int64_t offset, std::string_view bytes);
  // Syncs the file to disk (fsync), closes it, and gives it its name if that was not done by Create.
  absl::Status Close();

  int64_t size() const { return size_; }
  // Returns xxh3-64 of everything appended.
  uint64_t checksum() const;
  const std::string& path() const { return path_; }

 private:
  explicit FileWriter(std::string path);
  absl::Status Flush();

  struct Sum;
  std::string path_;
  int fd_ = -1;
  std::unique_ptr<AtomicFile> atomic_;  // owns fd_ if it is not null
  int64_t size_ = 0;
  std::string buffer_;
  std::unique_ptr<Sum> sum_;
};

// Open file. Thread-safe.
class FileReader {
 public:
  // Errors as FileError; FailedPrecondition, at once, for a FIFO or anything else that is no regular file. Symbolic
  // links are followed: tools that store data by content (git-annex, DVC) put them in place of files.
  static absl::StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }
  // Reads exactly `size` bytes from `offset`; DataLoss if the file ends before.
  absl::Status Read(int64_t offset, void* data, size_t size) const;
  // Returns xxh3-64 of the whole file.
  absl::StatusOr<uint64_t> Checksum() const;

 private:
  FileReader(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  const std::string path_;
  const int fd_;
  const int64_t size_;
};

// Returns DataLoss unless the open file has the size and (with check_sum) the checksum that a manifest names.
absl::Status CheckFile(const FileReader& file, const std::string& path, const v1::CheckpointFile& expected,
                       bool check_sum);
// Returns DataLoss for names that would lead out of a checkpoint's directory.
absl::Status CheckFileName(const std::string& name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_FILE_H_
