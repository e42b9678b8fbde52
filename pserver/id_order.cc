#include "pserver/id_order.h"

#include <algorithm>
#include <bit>

#include "framework/base/stable_hash.h"

namespace weir {

namespace {

// Of so many entries an insertion sort is as good as any.
constexpr uint32_t kInsertionSort = 32;

}  // namespace

void IdOrder::Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers) {
  const size_t n = ids.size();
  const auto key = [&](uint64_t entry) { return MixId(static_cast<uint64_t>(ids[static_cast<uint32_t>(entry)])); };
  // An entry is the high half of the key, then the position: 8 bytes, compared as one number.
  scratch_.resize(n);
  entries_.resize(n);
  // One pass into buckets by the highest bits, one or two entries each since mixed ids are uniform, then an insertion
  // sort over everything, which moves entries within their buckets only.
  const int bits = std::clamp(static_cast<int>(std::bit_width(n)) - 1, 1, 16);
  const int shift = 64 - bits;
  buckets_.assign((size_t{1} << bits) + 1, 0);
  bool sorted = true;
  uint64_t last = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(ids[i]));
    scratch_[i] = (mixed & 0xffffffff00000000u) | i;
    ++buckets_[(mixed >> shift) + 1];
    sorted &= last <= mixed;
    last = mixed;
  }
  if (sorted) {
    entries_.swap(scratch_);
  } else {
    uint32_t largest = 0;
    for (size_t b = 1; b < buckets_.size(); ++b) {
      largest = std::max(largest, buckets_[b]);
      buckets_[b] += buckets_[b - 1];
    }
    for (const uint64_t entry : scratch_) entries_[buckets_[entry >> shift]++] = entry;
    if (largest > kInsertionSort) {
      std::sort(entries_.begin(), entries_.end());
    } else {
      for (size_t i = 1; i < n; ++i) {
        const uint64_t entry = entries_[i];
        size_t at = i;
        for (; at > 0 && entries_[at - 1] > entry; --at) entries_[at] = entries_[at - 1];
        entries_[at] = entry;
      }
    }
    // The few whose high halves are equal.
    for (size_t i = 1; i < n; ++i) {
      if (entries_[i] >> 32 != entries_[i - 1] >> 32) continue;
      size_t end = i + 1;
      while (end < n && entries_[end] >> 32 == entries_[i] >> 32) ++end;
      std::sort(entries_.begin() + static_cast<ptrdiff_t>(i) - 1, entries_.begin() + static_cast<ptrdiff_t>(end),
                [&](uint64_t a, uint64_t b) { return key(a) < key(b); });
      i = end;
    }
  }
  positions_.resize(n);
  for (size_t i = 0; i < n; ++i) positions_[i] = static_cast<uint32_t>(entries_[i]);

  server_begins_.assign(static_cast<size_t>(servers) + 1, n);
  server_begins_[0] = 0;
  const int shard_bits = std::countr_zero(shards);
  for (int s = 1; s < servers; ++s) {
    const uint64_t first =
        (static_cast<uint64_t>(s) * shards + static_cast<uint64_t>(servers) - 1) / static_cast<uint64_t>(servers);
    if (first >= shards) continue;  // fewer shards than servers
    // A shard is chosen by bits of the high half alone; a position below does not matter.
    const uint64_t begin = first << (64 - shard_bits);
    server_begins_[static_cast<size_t>(s)] =
        static_cast<size_t>(std::lower_bound(entries_.begin(), entries_.end(), begin) - entries_.begin());
  }
}

void IdOrder::Select(const IdOrder& all, const uint8_t* skip) {
  positions_.clear();
  server_begins_.clear();
  for (size_t s = 0; s + 1 < all.server_begins_.size(); ++s) {
    server_begins_.push_back(positions_.size());
    for (size_t i = all.server_begins_[s]; i < all.server_begins_[s + 1]; ++i) {
      if (skip[all.positions_[i]] == 0) positions_.push_back(all.positions_[i]);
    }
  }
  server_begins_.push_back(positions_.size());
}

}  // namespace weir
