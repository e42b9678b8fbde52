// Uncompressed bytes of a file (trainer/files/open_bytes.h). One thread at a time.
#ifndef WEIR_TRAINER_FILES_BYTE_SOURCE_H_
#define WEIR_TRAINER_FILES_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "framework/base/status_macros.h"

namespace weir {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` bytes and returns their number; 0 at the end. DataLoss names the file and the place;
  // InvalidArgument: a decompression window that is too large.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
  // Reads `size` bytes, fewer only at the end of the file.
  absl::StatusOr<size_t> ReadFully(char* out, size_t size) {
    size_t filled = 0;
    while (filled < size) {
      ASSIGN_OR_RETURN(const size_t got, Read(out + filled, size - filled));
      if (got == 0) break;
      filled += got;
    }
    return filled;
  }

  // Goes on with byte `offset`. Returns false, and changes nothing, if the bytes can only be read in order.
  virtual bool JumpTo(int64_t /*offset*/) { return false; }

  static constexpr size_t kBlock =
      1 << 18;  // bytes read at once; fits into the second-level cache with what is made of it
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_BYTE_SOURCE_H_
