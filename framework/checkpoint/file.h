// Files as checkpoints need them: written in one go with a checksum, read in pieces, errors that name the file.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_FILE_H_
#define WEIR_FRAMEWORK_CHECKPOINT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// "<what> <path>: No space left on device". NotFound for a path that is not there; Unavailable for what may be over at
// the next try (the device, the server of the files, who else has it open); else FailedPrecondition: the disk is full
// or read-only, a file is in the way, a right is missing, and somebody has to mend that.
absl::Status FileError(std::string_view what, std::string_view path, int error);

// Appends through a buffer and sums up what it wrote. Not thread-safe. Removed by the destructor unless closed.
class FileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  absl::Status Append(const void* data, size_t size);
  // Zero bytes up to the next multiple of `alignment`.
  absl::Status AlignTo(size_t alignment);
  // Overwrites bytes already written; the checksum no longer holds after that.
  absl::Status Patch(int64_t offset, std::string_view bytes);
  // On disk (fsync) when this returns.
  absl::Status Close();

  int64_t size() const { return size_; }
  // xxh3-64 of everything appended.
  uint64_t checksum() const;
  const std::string& path() const { return path_; }

 private:
  explicit FileWriter(std::string path);
  absl::Status Flush();

  struct Sum;
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  std::string buffer_;
  std::unique_ptr<Sum> sum_;
};

// An open file. Thread-safe.
class FileReader {
 public:
  // Errors as FileError.
  static absl::StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }
  // Exactly `size` bytes from `offset`; DataLoss when the file ends before.
  absl::Status Read(int64_t offset, void* data, size_t size) const;
  // xxh3-64 of the whole file.
  absl::StatusOr<uint64_t> Checksum() const;

 private:
  FileReader(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  const std::string path_;
  const int fd_;
  const int64_t size_;
};

// DataLoss unless the open file has the size and (when asked) the checksum that a manifest names.
absl::Status CheckFile(const FileReader& file, const std::string& path, const v1::CheckpointFile& expected,
                       bool check_sum);
// DataLoss for names that would lead out of a checkpoint's directory.
absl::Status CheckFileName(const std::string& name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_FILE_H_
