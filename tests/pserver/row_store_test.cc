#include "pserver/tables/row_store.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int64_t kRowBytes = 20;

struct Store {
  explicit Store(int prefix_bits = 0, double spread = 0)
      : chunks(static_cast<size_t>(kRowBytes) << ChunkLog2(kRowBytes)), pages(kIndexPageBytes) {
    rows.Init(&chunks, &pages, kRowBytes, prefix_bits, spread);
  }
  void Put(int64_t id, uint32_t value) {
    char* const row = rows.Insert(id, MixId(static_cast<uint64_t>(id)));
    ASSERT_NE(row, nullptr);
    std::memcpy(row + 8, &value, sizeof(value));
  }
  // -1: no row.
  int64_t Get(int64_t id) const {
    const char* const row = rows.Find(id, MixId(static_cast<uint64_t>(id)));
    if (row == nullptr) return -1;
    uint32_t value;
    std::memcpy(&value, row + 8, sizeof(value));
    return value;
  }
  ChunkMemory chunks, pages;
  RowStore rows;
};

TEST(RowStoreTest, BehavesAsAMapUnderInsertionsAndErasures) {
  std::mt19937_64 random(5);
  for (const uint64_t range : {20u, 400u, 30000u}) {
    Store store(0, 0.3);
    std::map<int64_t, uint32_t> model;
    for (int i = 0; i < 300'000; ++i) {
      const int64_t id = static_cast<int64_t>(random() % range) - 10;
      const auto found = model.find(id);
      ASSERT_EQ(store.Get(id), found == model.end() ? -1 : int64_t{found->second});
      if (found == model.end()) {
        store.Put(id, static_cast<uint32_t>(i));
        model[id] = static_cast<uint32_t>(i);
      } else if (random() % 3 != 0) {
        store.rows.Erase(id, MixId(static_cast<uint64_t>(id)));
        model.erase(found);
      }
      ASSERT_EQ(store.rows.size(), model.size());
    }
    for (const auto& [id, value] : model) EXPECT_EQ(store.Get(id), value);
  }
}

// Ids whose home is one bucket fill it and those behind it, round the end; erased in any order, each is found until it
// goes.
TEST(RowStoreTest, FullBucketsSpillOverAndHealRoundTheEnd) {
  std::mt19937_64 random(7);
  for (const bool last : {false, true}) {
    std::vector<int64_t> ids;
    for (int64_t id = 0; ids.size() < 150; ++id) {
      // 16 buckets: the first, or the last.
      const uint64_t bucket = MixId(static_cast<uint64_t>(id)) >> 60;
      if (bucket == (last ? 15u : 0u)) ids.push_back(id);
    }
    Store store;
    for (int64_t id : ids) store.Put(id, static_cast<uint32_t>(id));
    std::shuffle(ids.begin(), ids.end(), random);
    while (!ids.empty()) {
      for (int64_t id : ids) ASSERT_EQ(store.Get(id), id);
      store.rows.Erase(ids.back(), MixId(static_cast<uint64_t>(ids.back())));
      ASSERT_EQ(store.Get(ids.back()), -1);
      ids.pop_back();
    }
    EXPECT_EQ(store.rows.size(), 0u);
  }
}

TEST(RowStoreTest, AVisitSeesEachRowOfAnIntervalOnce) {
  std::mt19937_64 random(9);
  for (const int rows : {0, 5, 200, 20'000}) {
    Store store;
    std::map<uint64_t, int64_t> by_hash;
    for (int i = 0; i < rows; ++i) {
      const int64_t id = static_cast<int64_t>(random());
      store.Put(id, 0);
      by_hash[MixId(static_cast<uint64_t>(id))] = id;
    }
    for (int round = 0; round < 200; ++round) {
      uint64_t first = random(), last = random();
      if (round == 0) first = 0, last = std::numeric_limits<uint64_t>::max();
      if (round % 2 == 1) last = first + (uint64_t{1} << 52);
      if (first > last) std::swap(first, last);
      std::multiset<int64_t> seen, expected;
      store.rows.Visit(first, last, [&](const char* row) { seen.insert(RowStore::Id(row)); });
      for (auto it = by_hash.lower_bound(first); it != by_hash.end() && it->first <= last; ++it)
        expected.insert(it->second);
      ASSERT_EQ(seen, expected);
    }
  }
}

TEST(RowStoreTest, PlacesOfErasedRowsAreUsedAgain) {
  Store store;
  for (int64_t id = 0; id < 10'000; ++id) store.Put(id, 1);
  const size_t chunks = store.chunks.bytes(), pages = store.pages.bytes();
  for (int64_t id = 10'000; id < 500'000; ++id) {
    store.rows.Erase(id - 10'000, MixId(static_cast<uint64_t>(id - 10'000)));
    store.Put(id, 1);
  }
  EXPECT_EQ(store.rows.size(), 10'000u);
  EXPECT_EQ(store.chunks.bytes(), chunks);
  EXPECT_EQ(store.pages.bytes(), pages);
}

TEST(RowStoreTest, AClearedStoreIsEmptyAndGoesOn) {
  Store store;
  for (int64_t id = 0; id < 5000; ++id) store.Put(id, 1);
  store.rows.Clear();
  store.chunks.Clear();
  EXPECT_EQ(store.rows.size(), 0u);
  EXPECT_EQ(store.Get(17), -1);
  store.Put(17, 3);
  EXPECT_EQ(store.Get(17), 3);
}

}  // namespace
}  // namespace weir
