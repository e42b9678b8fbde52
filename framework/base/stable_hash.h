// Hashes that determine placement and the meaning of stored bytes: xxHash3 with fixed seeds, equal on every machine and
// in every version. absl::Hash and std::hash are salted per process and must never be used for that.
#ifndef WEIR_FRAMEWORK_BASE_STABLE_HASH_H_
#define WEIR_FRAMEWORK_BASE_STABLE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir {

// xxh3-64 with seed 0.
uint64_t StableHash(const void* data, size_t size);
inline uint64_t StableHash(std::string_view s) { return StableHash(s.data(), s.size()); }
uint64_t StableHash(const void* data, size_t size, uint64_t seed);

// A 64-bit mixing function for ids (a bijection; the finaliser of splitmix64). Scheme version 1.
inline uint64_t MixId(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
// Returns the id of a mixed value: the inverse of MixId.
inline uint64_t UnmixId(uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3ULL;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ULL;
  return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15ULL;
}

// Returns the logical shard of an id: the top bits of its mixed value. `shards` is a power of two.
inline uint32_t LogicalShard(int64_t id, uint32_t shards) {
  return static_cast<uint32_t>((MixId(static_cast<uint64_t>(id)) >> 32) * shards >> 32);
}

// Returns the server of a logical shard: servers own consecutive shards, in runs as even as possible.
inline int ShardServer(uint32_t shard, uint32_t shards, int servers) {
  return static_cast<int>(static_cast<uint64_t>(shard) * static_cast<uint64_t>(servers) / shards);
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_STABLE_HASH_H_
