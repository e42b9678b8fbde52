#include "pserver/client/id_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "framework/base/stable_hash.h"

namespace weir {

namespace {

// Entries of a part on average, so that a part is sorted in the first-level cache.
constexpr size_t kPart = 1024;
constexpr int kMostPartBits = 12;
// Parts of one task, where several threads sort.
constexpr size_t kPartsTogether = 8;
// Ids of one task, where several threads group them, and the fewest that are worth it.
constexpr size_t kChunk = size_t{8} << 10;
constexpr size_t kFewestIds = size_t{16} << 10;
// At most so many entries are sorted by insertion, which is as fast as any sort at this size.
constexpr size_t kInsertionSort = 32;
constexpr int kDigitBits = 8;
constexpr size_t kDigits = size_t{1} << kDigitBits;

}  // namespace

void IdOrder::Prepare(absl::Span<const int64_t> ids) {
  const size_t n = ids.size();
  ids_ = ids;
  // An entry is the high half of the key followed by the position: 8 bytes, compared as one number.
  scratch_.resize(n);
  entries_.resize(n);
  positions_.resize(n);
  const int bits = std::clamp(static_cast<int>(std::bit_width(n / kPart)), 1, kMostPartBits);
  shift_ = 64 - bits;
  part_begins_.assign((size_t{1} << bits) + 1, 0);
}

bool IdOrder::Count(size_t begin, size_t end, size_t* counts) {
  const auto mix = [this](size_t i) { return MixId(static_cast<uint64_t>(ids_[i])); };
  bool sorted = true;
  uint64_t last = begin == 0 ? 0 : mix(begin - 1);
  for (size_t i = begin; i < end; ++i) {
    const uint64_t mixed = mix(i);
    scratch_[i] = (mixed & 0xffffffff00000000u) | i;
    ++counts[mixed >> shift_];
    sorted &= last <= mixed;
    last = mixed;
  }
  return sorted;
}

void IdOrder::Group(ThreadPool* pool) {
  const size_t n = ids_.size(), parts = part_begins_.size() - 1;
  const bool several = pool != nullptr && pool->threads() > 0 && n >= kFewestIds;
  const size_t chunk = several ? kChunk : std::max<size_t>(n, 1), chunks = (n + chunk - 1) / chunk;
  next_.assign(chunks * parts, 0);
  chunk_sorted_.resize(chunks);
  const auto for_each_chunk = [&](auto fn) {
    const auto run = [&](int64_t c) {
      const size_t at = static_cast<size_t>(c), begin = at * chunk;
      fn(at, begin, std::min(begin + chunk, n), next_.data() + at * parts);
    };
    if (several) return pool->ParallelFor(static_cast<int64_t>(chunks), run);
    for (size_t c = 0; c < chunks; ++c) run(static_cast<int64_t>(c));
  };
  for_each_chunk([&](size_t c, size_t begin, size_t end, size_t* counts) {
    chunk_sorted_[c] = Count(begin, end, counts) ? 1 : 0;
  });
  size_t begin = 0;
  for (size_t p = 0; p < parts; ++p) {
    part_begins_[p] = begin;
    for (size_t c = 0; c < chunks; ++c) begin += std::exchange(next_[c * parts + p], begin);
  }
  part_begins_[parts] = begin;
  const bool sorted = std::find(chunk_sorted_.begin(), chunk_sorted_.end(), 0) == chunk_sorted_.end();
  part_sorted_.assign(parts, sorted ? 1 : 0);
  if (sorted) {
    entries_.swap(scratch_);
    std::iota(positions_.begin(), positions_.end(), 0u);
    return;
  }
  for_each_chunk([&](size_t, size_t from, size_t to, size_t* next) {
    for (size_t i = from; i < to; ++i) entries_[next[scratch_[i] >> shift_]++] = scratch_[i];
  });
}

void IdOrder::SetServerBegins(uint32_t shards, int servers) {
  server_begins_.assign(static_cast<size_t>(servers) + 1, ids_.size());
  server_begins_[0] = 0;
  const int shard_bits = std::countr_zero(shards);
  for (int s = 1; s < servers; ++s) {
    const uint64_t first =
        (static_cast<uint64_t>(s) * shards + static_cast<uint64_t>(servers) - 1) / static_cast<uint64_t>(servers);
    if (first >= shards) continue;  // fewer shards than servers
    // The high half of the key alone decides the shard, so the position bits may be zero.
    const uint64_t least = first << (64 - shard_bits);
    const size_t part = least >> shift_;
    SortPart(part);
    const auto at = [this](size_t i) { return entries_.begin() + static_cast<ptrdiff_t>(i); };
    server_begins_[static_cast<size_t>(s)] = static_cast<size_t>(
        std::lower_bound(at(part_begins_[part]), at(part_begins_[part + 1]), least) - entries_.begin());
  }
}

void IdOrder::Start(absl::Span<const int64_t> ids, uint32_t shards, int servers) {
  Prepare(ids);
  Group(/*pool=*/nullptr);
  SetServerBegins(shards, servers);
}

void IdOrder::Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers, ThreadPool* pool) {
  Prepare(ids);
  Group(pool);
  Finish(pool);
  SetServerBegins(shards, servers);
}

void IdOrder::Finish(size_t begin, size_t end) {
  if (begin >= end || part_sorted_.empty()) return;
  for (size_t p = entries_[begin] >> shift_; p < part_sorted_.size() && part_begins_[p] < end; ++p) SortPart(p);
}

void IdOrder::Finish(ThreadPool* pool) {
  const size_t parts = part_sorted_.size(), tasks = (parts + kPartsTogether - 1) / kPartsTogether;
  pool->ParallelFor(static_cast<int64_t>(tasks), [&](int64_t task) {
    const size_t begin = static_cast<size_t>(task) * kPartsTogether;
    for (size_t p = begin; p < std::min(begin + kPartsTogether, parts); ++p) SortPart(p);
  });
}

void IdOrder::SortPart(size_t part) {
  if (part_sorted_[part] != 0) return;
  part_sorted_[part] = 1;
  const size_t begin = part_begins_[part], end = part_begins_[part + 1];
  const auto at = [this](size_t i) { return entries_.begin() + static_cast<ptrdiff_t>(i); };
  bool nearly = end - begin <= kInsertionSort;
  if (!nearly) {
    // Radix sort by the two digits below the part's own bits, the lower one first. Mixed ids are uniform, so few
    // entries stay out of order for the insertion sort.
    const int high = shift_ - kDigitBits, low = high - kDigitBits;
    const auto digit = [](uint64_t entry, int shift) { return (entry >> shift) & (kDigits - 1); };
    uint32_t low_begins[kDigits] = {}, high_begins[kDigits] = {};
    for (size_t i = begin; i < end; ++i) {
      ++low_begins[digit(entries_[i], low)];
      ++high_begins[digit(entries_[i], high)];
    }
    nearly = *std::max_element(high_begins, high_begins + kDigits) <= kInsertionSort;
    if (nearly) {
      uint32_t lows = static_cast<uint32_t>(begin), highs = lows;
      for (size_t d = 0; d < kDigits; ++d) {
        lows += std::exchange(low_begins[d], lows);
        highs += std::exchange(high_begins[d], highs);
      }
      for (size_t i = begin; i < end; ++i) scratch_[low_begins[digit(entries_[i], low)]++] = entries_[i];
      for (size_t i = begin; i < end; ++i) entries_[high_begins[digit(scratch_[i], high)]++] = scratch_[i];
    }
  }
  if (nearly) {
    for (size_t i = begin + 1; i < end; ++i) {
      const uint64_t entry = entries_[i];
      size_t to = i;
      for (; to > begin && entries_[to - 1] > entry; --to) entries_[to] = entries_[to - 1];
      entries_[to] = entry;
    }
  } else {
    std::sort(at(begin), at(end));
  }
  // Orders the few entries whose high halves are equal by the whole key.
  const auto key = [this](uint64_t entry) { return MixId(static_cast<uint64_t>(ids_[static_cast<uint32_t>(entry)])); };
  for (size_t i = begin + 1; i < end; ++i) {
    if (entries_[i] >> 32 != entries_[i - 1] >> 32) continue;
    size_t last = i + 1;
    while (last < end && entries_[last] >> 32 == entries_[i] >> 32) ++last;
    std::sort(at(i - 1), at(last), [&](uint64_t a, uint64_t b) { return key(a) < key(b); });
    i = last;
  }
  for (size_t i = begin; i < end; ++i) positions_[i] = static_cast<uint32_t>(entries_[i]);
}

void IdOrder::Select(const IdOrder& all, const uint8_t* skip) {
  positions_.clear();
  server_begins_.clear();
  part_sorted_.clear();  // nothing is left to be finished
  for (size_t s = 0; s + 1 < all.server_begins_.size(); ++s) {
    server_begins_.push_back(positions_.size());
    for (size_t i = all.server_begins_[s]; i < all.server_begins_[s + 1]; ++i) {
      if (skip[all.positions_[i]] == 0) positions_.push_back(all.positions_[i]);
    }
  }
  server_begins_.push_back(positions_.size());
}

}  // namespace weir
