// Uncompressed bytes of a plain, gzip or zstd file, or of what a command makes of a file. One thread at a time. The
// counter "data.read" of the process has the bytes read from files, as they lie there.
#ifndef WEIR_TRAINER_FILES_BYTE_SOURCE_H_
#define WEIR_TRAINER_FILES_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/files/data_file.h"

namespace weir {

// Source of the uncompressed bytes of a file, in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` bytes and returns their number; 0 at the end. DataLoss names the file and the place;
  // InvalidArgument: a decompression window that is too large.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
  // Reads `size` bytes, fewer only at the end of the file.
  absl::StatusOr<size_t> ReadFully(char* out, size_t size);

  // Goes on with byte `offset`. Returns false, and changes nothing, if the bytes can only be read in order.
  virtual bool JumpTo(int64_t /*offset*/) { return false; }

  // Opens the file: a plain one from byte `begin` on, a sequential one from its start. `file` must outlive the source.
  // Errors: NotFound, DataLoss. A file behind a command is opened by the first Read, whose errors are then also those
  // of PipedCommand and MakeColumnText.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const DataFile& file, int64_t begin);

  static constexpr size_t kBlock =
      1 << 18;  // bytes read at once; fits into the second-level cache with what is made of it
};

// Detects the compression from the first bytes of a file, of which four suffice.
Compression CompressionOf(std::string_view begin);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_BYTE_SOURCE_H_
