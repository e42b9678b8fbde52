#include "framework/base/stable_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weir {

uint64_t StableHash(const void* data, size_t size) { return XXH3_64bits(data, size); }

uint64_t StableHash(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

}  // namespace weir
