// Writes arrays for NumPy; numpy.load(path) returns them by name. A .npz is a zip archive of .npy files, stored without
// compression.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_NPZ_H_
#define WEIR_FRAMEWORK_CHECKPOINT_NPZ_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/checkpoint/file.h"

namespace weir {

// Writes beside `path` and renames in Finish, so an unfinished file never replaces a good one. Arrays and files
// may have any size. After an error the writer is of no further use. Not thread-safe.
class NpzWriter {
 public:
  // InvalidArgument if `path` is a pipe or a descriptor of this process. Other errors, here and below, are those of
  // FileError (framework/checkpoint/file.h).
  static absl::StatusOr<std::unique_ptr<NpzWriter>> Create(const std::string& path);

  // Adds a whole array. InvalidArgument if dims and data differ, a dim is negative, or the name was used or is longer
  // than 65,535 bytes.
  absl::Status Add(std::string_view name, absl::Span<const int64_t> dims, absl::Span<const float> data);
  absl::Status Add(std::string_view name, absl::Span<const int64_t> dims, absl::Span<const int64_t> data);
  // Add an array in pieces: Begin, Append until full, End. `data` is row-major: floats after BeginFloats, int64_t after
  // BeginInts. InvalidArgument if the bytes are not those of the dims, FailedPrecondition in another order.
  absl::Status BeginFloats(std::string_view name, absl::Span<const int64_t> dims);
  absl::Status BeginInts(std::string_view name, absl::Span<const int64_t> dims);
  absl::Status Append(const void* data, size_t bytes);
  absl::Status End();

  // Writes the archive's directory, syncs the file to disk and renames it to `path`. No calls after that.
  absl::Status Finish();

 private:
  struct Member {
    std::string name;
    uint32_t crc = 0;
    uint64_t size = 0;
    uint64_t offset = 0;
  };
  explicit NpzWriter(std::unique_ptr<FileWriter> file) : file_(std::move(file)) {}
  absl::Status Begin(std::string_view name, std::string_view descr, size_t element_size,
                     absl::Span<const int64_t> dims);

  std::unique_ptr<FileWriter> file_;
  std::vector<Member> members_;
  bool open_ = false;
  uint64_t expected_bytes_ = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_NPZ_H_
