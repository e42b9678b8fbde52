// The frame of a record in a TFRecord file: its length (8 bytes, little-endian), the masked CRC-32C of these 8 bytes,
// the bytes, and their masked CRC-32C. Thread-safe.
#ifndef WEIR_TRAINER_FILES_TF_RECORD_FRAME_H_
#define WEIR_TRAINER_FILES_TF_RECORD_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/files/data_file.h"

namespace weir {

struct TfRecordFrame {
  // Bytes before and behind those of a record.
  static constexpr size_t kLength = 8, kCrc = 4;
  static constexpr size_t kHeader = kLength + kCrc, kFooter = kCrc;
  static constexpr int64_t kMostBytes = 16 << 20;  // of a record, as of a line

  // Returns whether the masked CRC-32C of `size` bytes stands behind them.
  static bool IsRight(const char* bytes, size_t size);
  // Returns the length that a header at `offset` of a file says. DataLoss: the header is damaged. InvalidArgument: the
  // record is too long, or the file no TFRecord file.
  static absl::StatusOr<size_t> Length(const DataFile& file, int64_t offset, const char* header);
  // Checks the bytes of the record at `offset`; DataLoss.
  static absl::Status Check(const DataFile& file, int64_t offset, std::string_view record);
  // Returns the error of a file that ends in the middle of the record at `offset`, of which it has `got` bytes, frame
  // included, at least one.
  static absl::Status Cut(const DataFile& file, int64_t offset, std::string_view got);
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_TF_RECORD_FRAME_H_
