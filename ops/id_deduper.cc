#include "ops/id_deduper.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Ids whose slots are prefetched together, so that their cache misses overlap.
constexpr int64_t kBlock = 64;
constexpr uint64_t kFewestSlots = 8 * kBlock;

inline uint64_t Mix(int64_t id) {
  uint64_t h = static_cast<uint64_t>(id);
  h ^= h >> 32;
  return h * 0x9E3779B97F4A7C15u;
}

}  // namespace

void IdDeduper::SetSlots(uint64_t slots) {
  if (slots_.size() < slots) slots_.resize(slots);
  std::memset(slots_.data(), 0, slots * sizeof(uint32_t));
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  // Take the tag from the bits below those that choose the slot: slot and place have at most 32 bits each, so enough
  // are left.
  tag_shift_ = shift_ - (32 - place_bits_);
  most_used_ = slots / 4;
}

void IdDeduper::Start(int64_t most_ids) {
  CHECK(most_ids >= 0 && most_ids < std::numeric_limits<int32_t>::max()) << most_ids;
  place_bits_ = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(most_ids))));
  // Expect about as many distinct ids as in the previous batch.
  const int64_t expected = last_unique_ < 0 ? most_ids : std::min(most_ids, last_unique_ + last_unique_ / 8);
  SetSlots(std::bit_ceil(std::max(4 * static_cast<uint64_t>(expected), kFewestSlots)));
  left_ = most_ids;
  last_unique_ = 0;
}

void IdDeduper::Grow(const int64_t* known, size_t used) {
  SetSlots(2 * (mask_ + 1));
  for (size_t i = 0; i < used; ++i) {
    const uint64_t hash = Mix(known[i]);
    uint64_t at = hash >> shift_;
    while (slots_[at] != 0) at = (at + 1) & mask_;
    slots_[at] = Tag(hash) | static_cast<uint32_t>(i + 1);
  }
}

void IdDeduper::Add(const int64_t* ids, int64_t n, int32_t* index, std::vector<int64_t>* unique) {
  left_ -= n;
  CHECK_GE(left_, 0) << "more ids than Start was told";
  size_t used = unique->size();
  unique->resize(used + static_cast<size_t>(n));
  int64_t* const known = unique->data();
  const uint32_t place_mask = (uint32_t{1} << place_bits_) - 1;
  uint64_t hashes[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    if (used > most_used_) Grow(known, used);
    uint32_t* const slots = slots_.data();
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      hashes[i] = Mix(ids[begin + i]);
      __builtin_prefetch(&slots[hashes[i] >> shift_], 1);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = ids[begin + i];
      const uint32_t tag = Tag(hashes[i]);
      // Store the id as if it were new, and treat an empty slot as a match: this costs one well-predicted branch, where
      // a branch on whether the id is new would be unpredictable.
      known[used] = id;
      const uint32_t fresh = tag | static_cast<uint32_t>(used + 1);
      uint64_t at = hashes[i] >> shift_;
      uint32_t slot = slots[at] == 0 ? fresh : slots[at];
      while ((slot & ~place_mask) != tag || known[(slot & place_mask) - 1] != id) {
        at = (at + 1) & mask_;
        slot = slots[at] == 0 ? fresh : slots[at];
      }
      slots[at] = slot;
      used += slot == fresh ? 1 : 0;
      index[begin + i] = static_cast<int32_t>((slot & place_mask) - 1);
    }
  }
  unique->resize(used);
  last_unique_ = static_cast<int64_t>(used);
}

}  // namespace weir
