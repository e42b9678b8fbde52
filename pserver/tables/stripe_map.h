// Map of the logical shards and stripes of a table that one server holds, and of the ids in them. Immutable.
//
// Ids are ordered by MixId(id). A shard is one interval of that order, and a stripe is a power-of-two group of shards,
// less the shards of other servers.
#ifndef WEIR_PSERVER_TABLES_STRIPE_MAP_H_
#define WEIR_PSERVER_TABLES_STRIPE_MAP_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace weir {

// Ids of one call that lie in one stripe: those at positions [begin, begin + size) of the call, or at
// order[begin, begin + size). Borrows both.
struct StripeIds {
  const int64_t* ids = nullptr;
  const uint32_t* order = nullptr;
  int64_t begin = 0;
  int64_t size = 0;

  // Returns the position in the call of the k-th id of the stripe.
  int64_t Position(int64_t k) const { return order == nullptr ? begin + k : int64_t{order[begin + k]}; }
  int64_t Id(int64_t k) const { return ids[Position(k)]; }
};

class StripeMap {
 public:
  // The server holds shards [shard_begin, shard_end) of logical_shards, a power of two. `stripes`: wanted number.
  StripeMap(uint32_t logical_shards, uint32_t shard_begin, uint32_t shard_end, int stripes);

  int stripes() const { return stripes_; }
  uint32_t logical_shards() const { return logical_shards_; }
  uint32_t shard_begin() const { return shard_begin_; }
  uint32_t shard_end() const { return shard_end_; }
  // Returns the number of shards in a stripe, of this server and others.
  uint32_t shards_per_stripe() const { return uint32_t{1} << group_log2_; }
  // Returns the number of high bits that the MixIds of a stripe's ids have in common.
  int prefix_bits() const { return shard_bits_ - group_log2_; }

  uint32_t ShardOf(uint64_t mixed) const { return static_cast<uint32_t>((mixed >> 32) * logical_shards_ >> 32); }
  int StripeOf(uint64_t mixed) const { return static_cast<int>((ShardOf(mixed) >> group_log2_) - first_group_); }
  bool OwnsShard(uint32_t shard) const { return shard >= shard_begin_ && shard < shard_end_; }

  // Returns the smallest MixId of the stripe's ids, whichever server holds them.
  uint64_t StripeBegin(int stripe) const;
  // Returns the first and last MixId of a shard, and of the shards of a stripe that this server holds.
  std::pair<uint64_t, uint64_t> ShardRange(uint32_t shard) const;
  std::pair<uint64_t, uint64_t> StripeRange(int stripe) const;
  // Returns the shards of the stripe that this server holds, [first, second).
  std::pair<uint32_t, uint32_t> ShardsOf(int stripe) const;

  // A batch cut into stripes.
  struct Sections {
    std::vector<int64_t> begins;  // stripes() + 1
    std::vector<uint32_t> order;  // positions by stripe; empty if the batch is already in that order

    StripeIds Of(int stripe, absl::Span<const int64_t> ids) const {
      const int64_t begin = begins[static_cast<size_t>(stripe)], end = begins[static_cast<size_t>(stripe) + 1];
      return {ids.data(), order.empty() ? nullptr : order.data(), begin, end - begin};
    }
  };
  // Cuts ids, of which there is at least one, into stripes. Returns an id of another server's shard if there is one;
  // the sections are then incomplete.
  std::optional<int64_t> Partition(absl::Span<const int64_t> ids, Sections* sections) const;

 private:
  // Cuts ids that ascend by MixId.
  void CutSorted(absl::Span<const int64_t> ids, std::vector<int64_t>* begins) const;

  const uint32_t logical_shards_;
  const uint32_t shard_begin_;
  const uint32_t shard_end_;
  const int shard_bits_;
  int group_log2_ = 0;  // shards per stripe
  uint32_t first_group_ = 0;
  int stripes_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STRIPE_MAP_H_
