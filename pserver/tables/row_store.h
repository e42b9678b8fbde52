// Hash table of rows of one size, keyed by MixId of an id. Not thread-safe: a stripe's lock is held around it.
//
// Rows never move while they exist (numbered_rows.h). Ids are not stored in them but in the index, in 9 bytes per row
// together with the row's number; so a row of 64 bytes is one cache line, and a miss touches no row. The index consists
// of buckets of one cache line each, filled to between 0.64 and 0.8. The bucket of an id is a rising function of MixId,
// so a batch sorted by it walks the index from one end to the other, and the ids of an interval of MixId (a logical
// shard) lie in one stretch of it.
#ifndef WEIR_PSERVER_TABLES_ROW_STORE_H_
#define WEIR_PSERVER_TABLES_ROW_STORE_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "framework/base/stable_hash.h"
#include "pserver/tables/numbered_rows.h"
#include "pserver/tables/row_memory.h"

namespace weir {

// Size of the index's pieces: 64 buckets.
inline constexpr size_t kIndexPageBytes = 4096;

class RowStore {
 public:
  // Prepares an empty store. `chunks` and `row_bytes` as in NumberedRows::Init; `pages`, of kIndexPageBytes, are
  // borrowed. Requires: called once, before everything else. The MixIds of all rows share the `prefix_bits`
  // highest bits of `first`, whose other bits are 0. `spread` in [0, 1): fraction of a growth step by which the first
  // size of the index is larger; stores that differ in it grow in different batches.
  void Init(ChunkMemory* chunks, ChunkMemory* pages, int64_t row_bytes, uint64_t first, int prefix_bits, double spread);

  // Returns the address that Find reads first.
  const void* BucketOf(uint64_t mixed) const { return Bucket(Home(mixed)); }
  // Returns the row of the id with this MixId, or nullptr.
  char* Find(uint64_t mixed) const {
    const uint64_t wanted = (mixed >> 8) << row_bits_;
    uint64_t at = Home(mixed);
    for (const uint64_t end = at + kReach; at < end; ++at) {
      const uint64_t* const bucket = Bucket(at);
      for (uint32_t fits = Fits(bucket, mixed); fits != 0; fits &= fits - 1) {
        // For the id's slot this leaves the row's number plus 1; an empty slot has no number.
        const uint64_t number = (bucket[std::countr_zero(fits)] ^ wanted) - 1;
        if (number < row_mask_) return rows_.At(number);
      }
      if (Displaced(bucket) == 0) return nullptr;
    }
    const auto far = far_.find(mixed);
    return far == far_.end() ? nullptr : rows_.At(far->second);
  }
  // Does what Find does for an id whose slot is the first of its bucket with its tag, as nine in ten are. Returns
  // nullptr for others, and prefetches the bucket where Find would go on.
  __attribute__((always_inline)) char* FindAtHome(uint64_t mixed) const {
    const uint64_t* const bucket = Bucket(Home(mixed));
    if (const uint32_t fits = Fits(bucket, mixed); fits != 0) {
      const uint64_t number = (bucket[std::countr_zero(fits)] ^ (mixed >> 8) << row_bits_) - 1;
      if (number < row_mask_) return rows_.At(number);
    }
    __builtin_prefetch(bucket + kBucketWords);
    return nullptr;
  }
  // Adds a row and returns it, uninitialized. nullptr: no further row can be numbered. Requires: the id has no row.
  char* Insert(uint64_t mixed);
  // Erases the row of an id. Requires: the id has one.
  void Erase(uint64_t mixed);
  // Forgets all rows. Requires: the caller clears their chunks.
  void Clear();

  // Calls fn(id, row) for every row whose MixId lies in [first, last], in an order that depends on the store. Requires:
  // fn neither inserts nor erases.
  template <typename Fn>
  void Visit(uint64_t first, uint64_t last, const Fn& fn) const;

  uint64_t size() const { return rows_.size(); }
  // Returns the memory in use, except chunks and pages, which their allocators count.
  size_t bytes() const {
    return rows_.bytes() + page_of_.capacity() * sizeof(uint64_t*) +
           far_.capacity() * (sizeof(std::pair<uint64_t, uint64_t>) + 1);
  }

 private:
  // A bucket is eight words: seven slots, and a word of bytes that holds the slots' tags and the number of ids
  // displaced past the bucket.
  //
  // A slot holds the row's number plus 1 in the low row_bits (0 when it is empty), and bits of MixId from the ninth up
  // in the rest; its tag is the low 8 bits of MixId. These 72 - row_bits low bits of MixId and the bucket determine the
  // id: the bucket gives the high bits, except for the distance between the bucket and the id's home. The more buckets
  // there are, the more bits a row's number takes and the fewer bits are missing: 72 bits are enough for every size
  // (SetBuckets checks it). An id is stored in the first bucket of its reach that had a free slot. If none had, which
  // only ids chosen for that purpose cause, it is stored in far_. Invariant: between its home and the bucket with its
  // slot, or to the end of its reach if it is in far_, every bucket counts it as displaced; so Find ends at the first
  // bucket without displaced ids.
  static constexpr uint64_t kSlots = 7;
  static constexpr uint64_t kBucketWords = 8;
  static constexpr uint64_t kReach = 16;
  static constexpr uint64_t kPageBuckets = kIndexPageBytes / (kBucketWords * sizeof(uint64_t));
  // A count of displaced ids that has reached this value stays there.
  static constexpr uint8_t kMostDisplaced = 255;

  uint64_t Home(uint64_t mixed) const { return ((mixed << prefix_bits_) >> 32) * buckets_ >> 32; }
  uint64_t* Bucket(uint64_t bucket) const {
    return page_of_[bucket / kPageBuckets] + bucket % kPageBuckets * kBucketWords;
  }
  static uint8_t* Tags(uint64_t* bucket) { return reinterpret_cast<uint8_t*>(bucket + kSlots); }
  static const uint8_t* Tags(const uint64_t* bucket) { return reinterpret_cast<const uint8_t*>(bucket + kSlots); }
  static uint8_t Displaced(const uint64_t* bucket) { return Tags(bucket)[kSlots]; }
  // Returns one bit for each slot whose tag is the id's.
  static uint32_t Fits(const uint64_t* bucket, uint64_t mixed) {
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(bucket + kSlots - 1));
    const __m128i same = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(mixed)));
    return static_cast<uint32_t>(_mm_movemask_epi8(same)) >> 8 & ((1u << kSlots) - 1);
  }
  // Returns the first slot without a number, or kSlots. No branch: which slot it is cannot be predicted.
  static uint64_t FreeSlot(const uint64_t* bucket) {
    uint32_t free = 1u << kSlots;
#pragma GCC unroll 4
    for (uint64_t i = 0; i < kSlots; i += 2) {
      const __m128i halves =
          _mm_cmpeq_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bucket + i)), _mm_setzero_si128());
      const __m128i words = _mm_and_si128(halves, _mm_shuffle_epi32(halves, 0xB1));
      free |= static_cast<uint32_t>(_mm_movemask_pd(_mm_castsi128_pd(words))) << i;
    }
    // The eighth word is no slot, and its bit is set.
    return static_cast<uint64_t>(std::countr_zero(free));
  }
  // Shape of the index at the time an entry was written.
  struct Shape {
    uint64_t buckets = 0;
    int row_bits = 1;
  };
  // Returns the smallest MixId that this bucket can hold.
  uint64_t LeastIn(const Shape& shape, uint64_t bucket) const;
  // Returns the MixId of the id in a slot of a bucket with smallest MixId `least`: the first one from `least` on that
  // has the slot's low bits.
  static uint64_t Mixed(const Shape& shape, uint64_t least, uint64_t slot, uint8_t tag) {
    const uint64_t known = slot >> shape.row_bits << 8 | tag;
    const int bits = 72 - shape.row_bits;
    return bits >= 64 ? known : least + ((known - least) & ((uint64_t{1} << bits) - 1));
  }

  void Place(uint64_t mixed, uint64_t number);
  // Sets the size of the index and takes pages for it, which are not cleared.
  void SetBuckets(double wanted);
  void Grow();

  ChunkMemory* pages_ = nullptr;
  uint64_t first_ = 0;
  int prefix_bits_ = 0;
  int row_bits_ = 1;
  uint64_t row_mask_ = 1;
  // Number of home buckets. Behind the last one are as many more as an id can be displaced by.
  uint64_t buckets_ = 0;
  double wanted_buckets_ = 0;
  uint64_t max_rows_ = 0;  // row numbers are below it
  NumberedRows rows_;
  std::vector<uint64_t*> page_of_;
  // Row number by MixId.
  absl::flat_hash_map<uint64_t, uint64_t> far_;
};

template <typename Fn>
void RowStore::Visit(uint64_t first, uint64_t last, const Fn& fn) const {
  constexpr uint64_t kAhead = 32;
  std::pair<uint64_t, char*> ahead[kAhead + kSlots];
  uint64_t waiting = 0;
  const auto flush = [&] {
    for (uint64_t i = 0; i < waiting; ++i) fn(static_cast<int64_t>(UnmixId(ahead[i].first)), ahead[i].second);
    waiting = 0;
  };
  const Shape shape{buckets_, row_bits_};
  const uint64_t begin = Home(std::max(first, first_)), end = Home(last) + kReach;
  for (uint64_t at = begin; at < end; ++at) {
    const uint64_t* const bucket = Bucket(at);
    const uint64_t least = LeastIn(shape, at);
    for (uint64_t i = 0; i < kSlots; ++i) {
      if (bucket[i] == 0) continue;
      const uint64_t mixed = Mixed(shape, least, bucket[i], Tags(bucket)[i]);
      if (mixed < first || mixed > last) continue;
      char* const row = rows_.At((bucket[i] & row_mask_) - 1);
      const int64_t row_bytes = rows_.row_bytes();
      for (int64_t byte = 0; byte < std::min<int64_t>(row_bytes, 256); byte += 64) __builtin_prefetch(row + byte);
      __builtin_prefetch(row + row_bytes - 1);
      ahead[waiting++] = {mixed, row};
    }
    if (waiting >= kAhead) flush();
  }
  flush();
  for (const auto& [mixed, number] : far_) {
    if (mixed >= first && mixed <= last) fn(static_cast<int64_t>(UnmixId(mixed)), rows_.At(number));
  }
}

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_STORE_H_
