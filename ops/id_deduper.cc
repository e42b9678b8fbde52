#include "ops/id_deduper.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Slots are asked for this many ids ahead, so that their cache misses overlap.
constexpr int64_t kBlock = 64;

inline uint64_t Mix(int64_t id) {
  uint64_t h = static_cast<uint64_t>(id);
  h ^= h >> 32;
  return h * 0x9E3779B97F4A7C15u;
}

}  // namespace

void IdDeduper::Start(int64_t most_ids) {
  CHECK(most_ids >= 0 && most_ids < std::numeric_limits<int32_t>::max()) << most_ids;
  const uint64_t slots = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2 * most_ids, 64)));
  if (slots_.size() < slots) slots_.resize(slots);
  std::memset(slots_.data(), 0, slots * sizeof(Slot));
  shift_ = 64 - std::countr_zero(slots);
  mask_ = slots - 1;
  left_ = most_ids;
}

void IdDeduper::Add(const int64_t* ids, int64_t n, int32_t* index, std::vector<int64_t>* unique) {
  left_ -= n;
  CHECK_GE(left_, 0) << "more ids than Start was told";
  size_t used = unique->size();
  unique->resize(used + static_cast<size_t>(n));
  int64_t* const known = unique->data();
  Slot* const slots = slots_.data();
  uint64_t hashes[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      hashes[i] = Mix(ids[begin + i]);
      __builtin_prefetch(&slots[hashes[i] >> shift_], 1);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = ids[begin + i];
      const uint32_t tag = static_cast<uint32_t>(hashes[i]);
      uint64_t at = hashes[i] >> shift_;
      while (slots[at].place != 0 && (slots[at].tag != tag || known[slots[at].place - 1] != id)) at = (at + 1) & mask_;
      if (slots[at].place == 0) {
        known[used] = id;
        slots[at] = {tag, static_cast<uint32_t>(++used)};
      }
      index[begin + i] = static_cast<int32_t>(slots[at].place - 1);
    }
  }
  unique->resize(used);
}

}  // namespace weir
