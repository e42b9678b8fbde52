#include "framework/wire/checksum.h"

#include <new>

#include "framework/base/stable_hash.h"
#include "framework/wire/checksum_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weir {

namespace {

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

}  // namespace

uint64_t Checksum(const Slices& bytes) {
  if (bytes.empty()) return StableHash("", 0);
  if (bytes.size() == 1) {
    return HasAvx2() ? ChecksumAvx2(bytes[0].data, bytes[0].size) : StableHash(bytes[0].data, bytes[0].size);
  }
  Checksummer sum;
  for (const Slice& slice : bytes) sum.Add(slice.data, slice.size);
  return sum.Value();
}

namespace {
XXH3_state_t* State(unsigned char* state) { return std::launder(reinterpret_cast<XXH3_state_t*>(state)); }
}  // namespace

Checksummer::Checksummer() {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_) && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(new (state_) XXH3_state_t);
}

void Checksummer::Add(const void* data, size_t size) {
  if (size == 0) return;
  if (HasAvx2()) return UpdateChecksumAvx2(State(state_), data, size);
  XXH3_64bits_update(State(state_), data, size);
}

uint64_t Checksummer::Value() const { return XXH3_64bits_digest(State(const_cast<unsigned char*>(state_))); }

}  // namespace weir
