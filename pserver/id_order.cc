#include "pserver/id_order.h"

#include <algorithm>
#include <bit>

#include "framework/base/stable_hash.h"

namespace weir {

void IdOrder::Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers) {
  const size_t n = ids.size();
  // One pass into buckets by the highest bits, a few entries each, then each bucket by itself: mixed ids are uniform.
  const int bits = std::clamp(static_cast<int>(std::bit_width(n / 8)), 1, 16);
  const int shift = 64 - bits;
  buckets_.assign((size_t{1} << bits) + 1, 0);
  scratch_.resize(n);
  entries_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t key = MixId(static_cast<uint64_t>(ids[i]));
    scratch_[i] = {key, static_cast<uint32_t>(i)};
    ++buckets_[(key >> shift) + 1];
  }
  for (size_t b = 1; b < buckets_.size(); ++b) buckets_[b] += buckets_[b - 1];
  for (const Entry& entry : scratch_) entries_[buckets_[entry.key >> shift]++] = entry;
  // buckets_[b] is now where bucket b ends.
  size_t begin = 0;
  for (size_t b = 0; b + 1 < buckets_.size(); ++b) {
    const size_t end = buckets_[b];
    std::sort(entries_.begin() + static_cast<ptrdiff_t>(begin), entries_.begin() + static_cast<ptrdiff_t>(end),
              [](const Entry& x, const Entry& y) { return x.key < y.key; });
    begin = end;
  }

  server_begins_.assign(static_cast<size_t>(servers) + 1, n);
  server_begins_[0] = 0;
  const int shard_bits = std::countr_zero(shards);
  for (int s = 1; s < servers; ++s) {
    const uint64_t first =
        (static_cast<uint64_t>(s) * shards + static_cast<uint64_t>(servers) - 1) / static_cast<uint64_t>(servers);
    if (first >= shards) continue;  // fewer shards than servers
    const uint64_t key = first << (64 - shard_bits);
    server_begins_[static_cast<size_t>(s)] = static_cast<size_t>(
        std::lower_bound(entries_.begin(), entries_.end(), key, [](const Entry& e, uint64_t k) { return e.key < k; }) -
        entries_.begin());
  }
}

}  // namespace weir
