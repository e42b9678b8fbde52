// Checksums of bytes that lie in pieces: xxh3-64 with seed 0, equal to StableHash of the same bytes in one piece.
#ifndef WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
#define WEIR_FRAMEWORK_WIRE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "framework/wire/slices.h"

namespace weir {

uint64_t Checksum(const Slices& bytes);

// The same, of bytes that come one piece after the other.
class Checksummer {
 public:
  Checksummer();
  void Add(const void* data, size_t size);
  uint64_t Value() const;

 private:
  // An XXH3_state_t, whose header stays out of here.
  alignas(64) unsigned char state_[576];
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
