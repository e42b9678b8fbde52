// Computes checksums of bytes in pieces: xxh3-64 with seed 0, equal to StableHash of the bytes in one piece.
#ifndef WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
#define WEIR_FRAMEWORK_WIRE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "framework/wire/slices.h"

namespace weir {

uint64_t Checksum(const Slices& bytes);

// Computes the checksum incrementally, piece by piece.
class Checksummer {
 public:
  Checksummer();
  void Add(const void* data, size_t size);
  uint64_t Value() const;

 private:
  // Holds an XXH3_state_t, whose header is not included here.
  alignas(64) unsigned char state_[576];
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
