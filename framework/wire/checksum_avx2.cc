#include "framework/wire/checksum_avx2.h"

// Compiled for AVX2: the header chooses its loops by that, and nothing of it leaves this file.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weir {

static_assert(XXH_VECTOR == XXH_AVX2);

uint64_t ChecksumAvx2(const void* data, size_t size) { return XXH3_64bits(data, size); }

void UpdateChecksumAvx2(void* state, const void* data, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size);
}

}  // namespace weir
