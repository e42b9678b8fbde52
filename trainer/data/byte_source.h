// Uncompressed bytes of a plain, gzip or zstd file. One thread at a time.
#ifndef WEIR_TRAINER_DATA_BYTE_SOURCE_H_
#define WEIR_TRAINER_DATA_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/data_file.h"

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

  // Opens the file: a plain one from byte `begin` on, a compressed one from its start. `file` must outlive the source.
  // Errors: NotFound, DataLoss.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const DataFile& file, int64_t begin);

  static constexpr size_t kBlock =
      1 << 18;  // bytes read at once; fits into the second-level cache with what is made of it
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_BYTE_SOURCE_H_
