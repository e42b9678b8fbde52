// Ranks of items among all items of a catalogue, by the products of their vectors with a query: recall and reciprocal
// rank over a whole table.
//
// All products are computed, and none is written to memory: they are compared where they are made. A product is a chain
// of fused multiply-adds in the order of the width, so that it has the same bits on every processor and beside any
// other items and queries.
#ifndef WEIR_OPS_ITEM_RANKS_H_
#define WEIR_OPS_ITEM_RANKS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/thread_pool.h"

namespace weir {

// Vectors of items, stored 32 items side by side. Reading is thread-safe.
class PackedItems {
 public:
  static constexpr int64_t kPanel = 32;

  // width is at least 1. Vectors are NaN until they are set.
  PackedItems(int64_t items, int64_t width);

  // Copies the vectors [count, width] of the items from `first` on.
  void Set(int64_t first, int64_t count, const float* vectors);

  int64_t items() const { return items_; }
  int64_t width() const { return width_; }
  int64_t panels() const { return (items_ + kPanel - 1) / kPanel; }
  // Returns [width, 32].
  const float* panel(int64_t i) const { return data_.data() + i * kPanel * width_; }

 private:
  const int64_t items_, width_;
  std::vector<float> data_;
};

struct RankQuery {
  // [width]. Borrowed.
  const float* vector = nullptr;
  // The item whose rank is wanted.
  int64_t item = 0;
  // Items that are no candidates; the item itself and repetitions have no effect. Borrowed.
  std::span<const int64_t> without = {};
};

struct ItemRank {
  // Candidates with a larger product, and others with an equal one. A NaN is smaller than every number and equal to no
  // candidate's product.
  int64_t above = 0, equal = 0;
};

// Writes the rank of each query. Item numbers must be in [0, items()). `pool` may be null.
void RankItems(const PackedItems& items, std::span<const RankQuery> queries, ThreadPool* pool, ItemRank* ranks);

}  // namespace weir

#endif  // WEIR_OPS_ITEM_RANKS_H_
