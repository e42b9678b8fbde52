#include "pserver/tables/stripe_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

// Position of a row or entry in the order, and its place in memory.
template <typename At>
struct Place {
  uint32_t shard;
  int64_t id;
  At at;
  bool operator<(const Place& other) const { return shard != other.shard ? shard < other.shard : id < other.id; }
};

// Lists the ids of a store in order, and calls fn(i, row) for each.
template <typename Fn>
void InOrder(const RowStore& store, uint32_t logical_shards, std::vector<int64_t>* ids, const Fn& fn) {
  std::vector<Place<const char*>> places;
  places.reserve(store.size());
  store.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t id, const char* row) {
    places.push_back({LogicalShard(id, logical_shards), id, row});
  });
  std::sort(places.begin(), places.end());
  ids->resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) (*ids)[i] = places[i].id;
  for (size_t i = 0; i < places.size(); ++i) fn(i, places[i].at);
}

}  // namespace

void CopyRows(const RowStore& store, const RowLayout& layout, uint32_t logical_shards, std::vector<int64_t>* ids,
              std::vector<float>* rows) {
  const size_t floats = static_cast<size_t>(layout.floats());
  rows->resize(store.size() * floats);
  std::vector<float> scratch;
  InOrder(store, logical_shards, ids, [&](size_t i, const char* row) {
    std::memcpy(rows->data() + i * floats, layout.Floats(row, &scratch), floats * sizeof(float));
  });
}

absl::Status CopyFromBoth(const DiskTier& disk, Stripe& stripe, std::pair<uint64_t, uint64_t> range,
                          const RowLayout& layout, uint32_t logical_shards, std::vector<int64_t>* ids,
                          std::vector<float>* rows) {
  const size_t floats = static_cast<size_t>(layout.floats());
  std::vector<Place<size_t>> places;
  std::vector<float> found;
  std::vector<float> scratch;
  const auto add = [&](int64_t id, const char* from) {
    const float* const row = layout.Floats(from, &scratch);
    places.push_back({LogicalShard(id, logical_shards), id, places.size()});
    found.insert(found.end(), row, row + floats);
  };
  {
    MutexLock disk_lock(&stripe.disk_mu);
    RETURN_IF_ERROR(disk.Visit(stripe, range.first, range.second, add, add));
  }
  std::sort(places.begin(), places.end());
  ids->resize(places.size());
  rows->resize(found.size());
  for (size_t i = 0; i < places.size(); ++i) {
    (*ids)[i] = places[i].id;
    std::memcpy(rows->data() + i * floats, found.data() + places[i].at * floats, floats * sizeof(float));
  }
  return absl::OkStatus();
}

void CopyEntries(const RowStore& store, int size, uint32_t logical_shards, std::vector<int64_t>* ids,
                 std::vector<float>* words) {
  const size_t n = static_cast<size_t>(size);
  words->resize(store.size() * n);
  InOrder(store, logical_shards, ids,
          [&](size_t i, const char* entry) { std::memcpy(words->data() + i * n, entry, 4 * n); });
}

}  // namespace weir
