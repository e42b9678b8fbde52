#include "pserver/tables/stripe_map.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "framework/base/stable_hash.h"

namespace weir {

StripeMap::StripeMap(uint32_t logical_shards, uint32_t shard_begin, uint32_t shard_end, int stripes)
    : logical_shards_(logical_shards),
      shard_begin_(shard_begin),
      shard_end_(shard_end),
      shard_bits_(std::countr_zero(logical_shards)) {
  const uint32_t owned = shard_end - shard_begin;
  while ((owned >> (group_log2_ + 1)) >= static_cast<uint32_t>(std::max(1, stripes))) ++group_log2_;
  first_group_ = shard_begin >> group_log2_;
  stripes_ = owned == 0 ? 0 : static_cast<int>(((shard_end - 1) >> group_log2_) - first_group_ + 1);
}

uint64_t StripeMap::StripeBegin(int stripe) const {
  const uint64_t shard = (static_cast<uint64_t>(first_group_) + static_cast<uint64_t>(stripe)) << group_log2_;
  if (shard_bits_ == 0) return 0;
  // One past the last stripe of the last server there is no smallest value: callers ask for stripes only.
  return shard << (64 - shard_bits_);
}

std::pair<uint64_t, uint64_t> StripeMap::ShardRange(uint32_t shard) const {
  if (shard_bits_ == 0) return {0, std::numeric_limits<uint64_t>::max()};
  const uint64_t first = uint64_t{shard} << (64 - shard_bits_);
  return {first, first | std::numeric_limits<uint64_t>::max() >> shard_bits_};
}

std::pair<uint64_t, uint64_t> StripeMap::StripeRange(int stripe) const {
  const auto [begin, end] = ShardsOf(stripe);
  return {ShardRange(begin).first, ShardRange(end - 1).second};
}

std::pair<uint32_t, uint32_t> StripeMap::ShardsOf(int stripe) const {
  const uint32_t begin = (first_group_ + static_cast<uint32_t>(stripe)) << group_log2_;
  return {std::max(begin, shard_begin_), std::min(begin + shards_per_stripe(), shard_end_)};
}

void StripeMap::CutSorted(absl::Span<const int64_t> ids, std::vector<int64_t>* begins) const {
  size_t begin = 0;
  for (int s = 1; s < stripes_; ++s) {
    const uint64_t first = StripeBegin(s);
    size_t end = ids.size();
    while (begin < end) {
      const size_t middle = begin + (end - begin) / 2;
      if (MixId(static_cast<uint64_t>(ids[middle])) < first) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    (*begins)[static_cast<size_t>(s)] = static_cast<int64_t>(begin);
  }
  (*begins)[static_cast<size_t>(stripes_)] = static_cast<int64_t>(ids.size());
}

std::optional<int64_t> StripeMap::Partition(absl::Span<const int64_t> ids, Sections* sections) const {
  sections->begins.assign(static_cast<size_t>(stripes_) + 1, 0);
  sections->order.clear();
  bool sorted = true;
  uint64_t last = 0;
  for (const int64_t id : ids) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    sorted &= mixed >= last;
    last = mixed;
  }
  if (sorted && OwnsShard(ShardOf(MixId(static_cast<uint64_t>(ids[0])))) && OwnsShard(ShardOf(last))) {
    CutSorted(ids, &sections->begins);
    return std::nullopt;
  }
  for (const int64_t id : ids) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    if (!OwnsShard(ShardOf(mixed))) return id;
    ++sections->begins[static_cast<size_t>(StripeOf(mixed)) + 1];
  }
  for (size_t s = 0; s < static_cast<size_t>(stripes_); ++s) sections->begins[s + 1] += sections->begins[s];
  sections->order.resize(ids.size());
  std::vector<int64_t> next(sections->begins.begin(), sections->begins.end() - 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int stripe = StripeOf(MixId(static_cast<uint64_t>(ids[i])));
    sections->order[static_cast<size_t>(next[static_cast<size_t>(stripe)]++)] = static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

}  // namespace weir
