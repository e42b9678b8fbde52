// Checksums of bytes that lie in pieces: xxh3-64 with seed 0, equal to StableHash of the same bytes in one piece.
#ifndef WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
#define WEIR_FRAMEWORK_WIRE_CHECKSUM_H_

#include <cstdint>

#include "framework/wire/slices.h"

namespace weir {

uint64_t Checksum(const Slices& bytes);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CHECKSUM_H_
