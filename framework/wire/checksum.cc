#include "framework/wire/checksum.h"

#include "framework/base/stable_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weir {

uint64_t Checksum(const Slices& bytes) {
  if (bytes.empty()) return StableHash("", 0);
  if (bytes.size() == 1) return StableHash(bytes[0].data, bytes[0].size);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Slice& slice : bytes) {
    if (slice.size > 0) XXH3_64bits_update(&state, slice.data, slice.size);
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace weir
