// A hash table of rows of one size, each an int64 id and bytes behind it. Not thread-safe: a stripe's lock is held
// around it.
//
// Rows lie in chunks and never move while they exist. An index points at them: 4 bytes a row, in buckets of one cache
// line, filled to between 0.64 and 0.8. The bucket of an id is a rising function of MixId(id), so that a batch sorted
// by it walks the index from one end to the other, and the ids of an interval of MixId (a logical shard) stand in one
// stretch of it. The place of a row that went is used again, and its slot is closed: no marks of what has been stay
// behind.
#ifndef WEIR_PSERVER_TABLES_ROW_STORE_H_
#define WEIR_PSERVER_TABLES_ROW_STORE_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/base/stable_hash.h"
#include "pserver/tables/row_memory.h"

namespace weir {

// Rows of 64 KiB or so: chunks are rare, and a small table stays small.
int ChunkLog2(int64_t row_bytes);
// Pieces of an index: 64 buckets.
inline constexpr size_t kIndexPageBytes = 4096;

class RowStore {
 public:
  // Borrowed: `chunks` of row_bytes << ChunkLog2(row_bytes), `pages` of kIndexPageBytes. Ids whose MixId agree in the
  // `prefix_bits` highest. `spread` in [0, 1): by how much of a growth step the first size of the index is larger;
  // stores that differ in it grow in different batches.
  void Init(ChunkMemory* chunks, ChunkMemory* pages, int64_t row_bytes, int prefix_bits, double spread);

  static int64_t Id(const char* row) {
    int64_t id;
    std::memcpy(&id, row, sizeof(id));
    return id;
  }
  static uint64_t Mixed(const char* row) { return MixId(static_cast<uint64_t>(Id(row))); }

  // Inlined by force: a function that only prefetches has no effect that GCC knows of, and calls to it are dropped.
  __attribute__((always_inline)) void PrefetchSlot(uint64_t mixed) const { __builtin_prefetch(Bucket(Home(mixed))); }
  // The first row that may be the id's, by the index alone, or nullptr.
  char* Guess(uint64_t mixed) const {
    const uint32_t* const bucket = Bucket(Home(mixed));
    const uint32_t used = Used(bucket), fits = Fits(bucket, Tag(mixed)) & used;
    if (fits != 0) return Row((bucket[std::countr_zero(fits)] & RowMask()) - 1);
    // Find will look there.
    if (used == kFull) __builtin_prefetch(Bucket(Next(Home(mixed))));
    return nullptr;
  }
  // The row of the id, or nullptr.
  char* Find(int64_t id, uint64_t mixed) const {
    for (uint64_t at = Home(mixed);; at = Next(at)) {
      const uint32_t* const bucket = Bucket(at);
      const uint32_t used = Used(bucket);
      for (uint32_t fits = Fits(bucket, Tag(mixed)) & used; fits != 0; fits &= fits - 1) {
        char* const row = Row((bucket[std::countr_zero(fits)] & RowMask()) - 1);
        if (Id(row) == id) return row;
      }
      if (used != kFull) return nullptr;
    }
  }
  // A place for the id, which has none, with the id written and the rest not. nullptr: no further row can be numbered.
  char* Insert(int64_t id, uint64_t mixed);
  // The id has a row.
  void Erase(int64_t id, uint64_t mixed);
  // Forgets all rows; their chunks are the caller's to clear.
  void Clear();

  // Calls fn(row) for every row whose MixId lies in [first, last], in an order that depends on the store. fn neither
  // inserts nor erases.
  template <typename Fn>
  void Visit(uint64_t first, uint64_t last, const Fn& fn) const;

  uint64_t size() const { return rows_ - free_rows_; }
  // Beside chunks and pages, which are counted where they are from.
  size_t bytes() const { return (chunk_of_.capacity() + page_of_.capacity()) * sizeof(void*); }

 private:
  // A slot: 0 is empty; else the row's number plus 1 in the low row_bits, and the low bits of the hash above them, so
  // that a slot of another id is seldom mistaken for ours and its row seldom touched in vain. An id stands in its home
  // bucket, or, when that and all between are full, in a later one.
  static constexpr uint64_t kSlots = 16;
  static constexpr uint32_t kFull = (1u << kSlots) - 1;
  static constexpr uint64_t kPageBuckets = kIndexPageBytes / (kSlots * sizeof(uint32_t));

  uint64_t Home(uint64_t mixed) const { return ((mixed << prefix_bits_) >> 32) * buckets_ >> 32; }
  uint64_t Next(uint64_t bucket) const { return bucket + 1 == buckets_ ? 0 : bucket + 1; }
  uint32_t* Bucket(uint64_t bucket) const { return page_of_[bucket / kPageBuckets] + bucket % kPageBuckets * kSlots; }
  uint32_t Tag(uint64_t mixed) const { return static_cast<uint32_t>(mixed) << row_bits_; }
  uint32_t RowMask() const { return (uint32_t{1} << row_bits_) - 1; }
  char* Row(uint64_t row) const {
    return chunk_of_[row >> chunk_log2_] +
           (row & ((uint64_t{1} << chunk_log2_) - 1)) * static_cast<uint64_t>(row_bytes_);
  }

  // A bit for each slot that is equal to `value` where `mask` has ones.
  static uint32_t Equal(const uint32_t* bucket, uint32_t mask, uint32_t value) {
    const __m128i m = _mm_set1_epi32(static_cast<int>(mask)), v = _mm_set1_epi32(static_cast<int>(value));
    const auto quarter = [&](int i) {
      return _mm_cmpeq_epi32(_mm_and_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(bucket) + i), m), v);
    };
    const __m128i all =
        _mm_packs_epi16(_mm_packs_epi32(quarter(0), quarter(1)), _mm_packs_epi32(quarter(2), quarter(3)));
    return static_cast<uint32_t>(_mm_movemask_epi8(all));
  }
  // Of slots whose tag is this one, the empty ones as well when it is 0.
  uint32_t Fits(const uint32_t* bucket, uint32_t tag) const { return Equal(bucket, ~RowMask(), tag); }
  static uint32_t Used(const uint32_t* bucket) { return ~Equal(bucket, ~uint32_t{0}, 0) & kFull; }

  void Place(uint64_t mixed, uint64_t row) {
    uint64_t at = Home(mixed);
    uint32_t used;
    while ((used = Used(Bucket(at))) == kFull) at = Next(at);
    Bucket(at)[std::countr_one(used)] = Tag(mixed) | static_cast<uint32_t>(row + 1);
  }
  void SetBuckets(double wanted);
  void Grow();

  ChunkMemory* chunks_ = nullptr;
  ChunkMemory* pages_ = nullptr;
  int64_t row_bytes_ = 0;
  int chunk_log2_ = 0;
  int prefix_bits_ = 0;
  int row_bits_ = 1;
  uint64_t buckets_ = 0;
  double wanted_buckets_ = 0;
  uint64_t max_rows_ = 0;   // numbers of rows run below it
  uint64_t rows_ = 0;       // numbers given so far
  uint64_t free_rows_ = 0;  // of them without a row: each holds the number of the next plus 1, 0 at the end
  uint64_t first_free_ = 0;
  std::vector<char*> chunk_of_;
  std::vector<uint32_t*> page_of_;
};

template <typename Fn>
void RowStore::Visit(uint64_t first, uint64_t last, const Fn& fn) const {
  constexpr uint64_t kAhead = 32;
  const uint64_t begin = Home(first), end = Home(last);
  const char* ahead[kAhead + kSlots];
  uint64_t waiting = 0;
  const auto flush = [&] {
    for (uint64_t i = 0; i < waiting; ++i) {
      const uint64_t mixed = Mixed(ahead[i]);
      if (mixed >= first && mixed <= last) fn(const_cast<char*>(ahead[i]));
    }
    waiting = 0;
  };
  // To the last bucket of the interval, and on to where what full ones displaced ends.
  bool inside = true;
  uint64_t at = begin;
  while (true) {
    const uint32_t* const bucket = Bucket(at);
    const uint32_t used = Used(bucket);
    for (uint32_t rest = used; rest != 0; rest &= rest - 1) {
      const char* const row = Row((bucket[std::countr_zero(rest)] & RowMask()) - 1);
      for (int64_t byte = 0; byte < std::min<int64_t>(row_bytes_, 256); byte += 64) __builtin_prefetch(row + byte);
      __builtin_prefetch(row + row_bytes_ - 1);
      ahead[waiting++] = row;
    }
    if (waiting >= kAhead) flush();
    if (at == end) inside = false;
    if (!inside && used != kFull) break;
    at = Next(at);
    if (at == begin) break;
  }
  flush();
}

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_STORE_H_
