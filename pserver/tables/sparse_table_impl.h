// What the files of SparseTable share: the state of a stripe, and walks over the rows of a batch. Included by them
// alone.
#ifndef WEIR_PSERVER_TABLES_SPARSE_TABLE_IMPL_H_
#define WEIR_PSERVER_TABLES_SPARSE_TABLE_IMPL_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "pserver/tables/row_store.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

// How far ahead of use memory is fetched: first the slot, then the row. The ring holds both, a power of two.
inline constexpr int64_t kSlotAhead = 32;
inline constexpr int64_t kRowAhead = 16;
inline constexpr uint64_t kRing = 64;

inline uint32_t Word(const char* words, int i) {
  uint32_t word;
  std::memcpy(&word, words + 4 * i, sizeof(word));
  return word;
}
inline void SetWord(char* words, int i, uint32_t word) { std::memcpy(words + 4 * i, &word, sizeof(word)); }

inline float FloatWord(const char* words, int i) { return std::bit_cast<float>(Word(words, i)); }
inline void SetFloatWord(char* words, int i, float x) { SetWord(words, i, std::bit_cast<uint32_t>(x)); }

// The lines of a row, which may start anywhere in one. Inlined by force, see RowStore::PrefetchSlot.
__attribute__((always_inline)) inline void PrefetchRow(const char* row, int64_t bytes) {
  const char* line = reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(row) & ~uintptr_t{63});
  for (; line < row + bytes; line += 64) __builtin_prefetch(line);
}

// Calls fn(k, MixId, row or nullptr) for each of n ids until it returns false, with slots and the first `touched` bytes
// of rows fetched ahead of use. fn may insert; rows never move, so a guess made before is still one, and a miss is
// looked up again.
template <typename Id, typename Fn>
void Walk(const RowStore& store, int64_t n, int64_t touched, const Id& id, const Fn& fn) {
  uint64_t mixed[kRing];
  char* guess[kRing];
  for (int64_t i = 0; i < n + kSlotAhead + kRowAhead; ++i) {
    if (i < n) {
      const uint64_t m = MixId(static_cast<uint64_t>(id(i)));
      mixed[static_cast<uint64_t>(i) % kRing] = m;
      store.PrefetchSlot(m);
    }
    if (const int64_t j = i - kSlotAhead; j >= 0 && j < n) {
      char* const row = store.Guess(mixed[static_cast<uint64_t>(j) % kRing]);
      guess[static_cast<uint64_t>(j) % kRing] = row;
      if (row != nullptr) PrefetchRow(row, touched);
    }
    const int64_t k = i - kSlotAhead - kRowAhead;
    if (k < 0) continue;
    const uint64_t at = static_cast<uint64_t>(k) % kRing;
    char* row = guess[at];
    if (row == nullptr || RowStore::Id(row) != id(k)) row = store.Find(id(k), mixed[at]);
    if (!fn(k, mixed[at], row)) return;
  }
}

struct alignas(64) SparseTable::Stripe {
  mutable Mutex mu;
  RowStore rows ABSL_GUARDED_BY(mu);
  RowStore candidates ABSL_GUARDED_BY(mu);
  RowStore tombstones ABSL_GUARDED_BY(mu);
  // Rows that exist, wherever.
  int64_t exist ABSL_GUARDED_BY(mu) = 0;
  // When the lifecycle evicts: by shard, from the stripe's first on, and the shards that have too many.
  std::vector<int64_t> shard_rows ABSL_GUARDED_BY(mu);
  std::vector<int64_t> shard_candidates ABSL_GUARDED_BY(mu);
  std::vector<uint32_t> over ABSL_GUARDED_BY(mu);
  // Up to where the clock has come; -1: nowhere yet.
  int64_t seconds_position ABSL_GUARDED_BY(mu) = -1;
  Counts counts ABSL_GUARDED_BY(mu);  // sizes are the stores', but rows

  // With rows on disk. Held by whoever takes rows of the stripe out of memory or off the disk, before mu and also while
  // the disk works: those wait for each other, and nobody else for them.
  Mutex disk_mu ABSL_ACQUIRED_BEFORE(mu);
  // Some row may lie on disk.
  bool on_disk ABSL_GUARDED_BY(mu) = false;
  // Calls that used rows, modulo 2^31.
  uint32_t clock ABSL_GUARDED_BY(mu) = 0;
  // How often rows left memory, by the low bits of MixId. What was read from the disk before its count changed may be
  // old.
  static constexpr uint64_t kVersions = 1024;
  std::vector<uint32_t> versions ABSL_GUARDED_BY(mu);
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_SPARSE_TABLE_IMPL_H_
