#include "pserver/tables/row_store.h"

#include <algorithm>
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

constexpr int64_t kRowBytes = 12;

struct Store {
  explicit Store(double spread = 0, uint64_t first = 0, int prefix_bits = 0)
      : chunks(static_cast<size_t>(kRowBytes) << ChunkLog2(kRowBytes)), pages(kIndexPageBytes) {
    rows.Init(&chunks, &pages, kRowBytes, first, prefix_bits, spread);
  }
  void Put(int64_t id, uint32_t value) {
    char* const row = rows.Insert(MixId(static_cast<uint64_t>(id)));
    ASSERT_NE(row, nullptr);
    std::memcpy(row, &value, sizeof(value));
  }
  // -1: no row.
  int64_t Get(int64_t id) const {
    const char* const row = rows.Find(MixId(static_cast<uint64_t>(id)));
    if (row == nullptr) return -1;
    uint32_t value;
    std::memcpy(&value, row, sizeof(value));
    return value;
  }
  ChunkMemory chunks, pages;
  RowStore rows;
};

TEST(RowStoreTest, BehavesAsAMapUnderInsertionsAndErasures) {
  std::mt19937_64 random(5);
  for (const uint64_t range : {20u, 400u, 30000u}) {
    Store store(0.3);
    std::map<int64_t, uint32_t> model;
    for (int i = 0; i < 300'000; ++i) {
      const int64_t id = static_cast<int64_t>(random() % range) - 10;
      const auto found = model.find(id);
      ASSERT_EQ(store.Get(id), found == model.end() ? -1 : int64_t{found->second});
      if (found == model.end()) {
        store.Put(id, static_cast<uint32_t>(i));
        model[id] = static_cast<uint32_t>(i);
      } else if (random() % 3 != 0) {
        store.rows.Erase(MixId(static_cast<uint64_t>(id)));
        model.erase(found);
      }
      ASSERT_EQ(store.rows.size(), model.size());
    }
    for (const auto& [id, value] : model) EXPECT_EQ(store.Get(id), value);
  }
}

// Ids whose home is one bucket fill it and those behind it, and then all they can reach; the same with ids that differ
// in the highest bits or the lowest only. Erased in any order, each is found until it goes, and none is taken for
// another.
TEST(RowStoreTest, IdsMadeToCollideAreToldApart) {
  std::mt19937_64 random(7);
  for (const int prefix_bits : {0, 6, 20}) {
    const uint64_t first = prefix_bits == 0 ? 0 : uint64_t{5} << (64 - prefix_bits);
    for (const bool last : {false, true}) {
      std::vector<int64_t> ids;
      const uint64_t home = last ? ~uint64_t{0} >> prefix_bits & ~uint64_t{0xffff} : 0;
      for (uint64_t i = 0; i < 400; ++i) {
        // Side by side; at distances that a slot's bits do not see without its bucket; anywhere near.
        const uint64_t low = i < 150 ? i : i < 250 ? (i - 150) << (57 - prefix_bits) : random() >> (prefix_bits + 20);
        const uint64_t mixed = first | (last ? home - low : low);
        ids.push_back(static_cast<int64_t>(UnmixId(mixed)));
      }
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      std::shuffle(ids.begin(), ids.end(), random);
      Store store(0, first, prefix_bits);
      std::set<int64_t> model;
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(store.Get(ids[i]), -1);
        store.Put(ids[i], static_cast<uint32_t>(i));
        model.insert(ids[i]);
      }
      while (!ids.empty()) {
        for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(store.Get(ids[i]), static_cast<int64_t>(i));
        std::set<int64_t> seen;
        store.rows.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t id, const char*) { seen.insert(id); });
        ASSERT_EQ(seen, model);
        store.rows.Erase(MixId(static_cast<uint64_t>(ids.back())));
        ASSERT_EQ(store.Get(ids.back()), -1);
        model.erase(ids.back());
        ids.pop_back();
      }
      EXPECT_EQ(store.rows.size(), 0u);
    }
  }
}

// Through every size of the index, in a store that has a part of the ids only: none is lost or taken for another.
TEST(RowStoreTest, AnIdIsRebuiltFromItsSlotAtEverySize) {
  std::mt19937_64 random(11);
  for (const int prefix_bits : {0, 1, 6, 12, 20}) {
    const uint64_t first = prefix_bits == 0 ? 0 : (~uint64_t{0} << (64 - prefix_bits));
    Store store(0.7, first, prefix_bits);
    std::set<int64_t> model;
    size_t check_at = 1;
    for (int i = 0; i < 40'000; ++i) {
      const int64_t id = static_cast<int64_t>(UnmixId(first | random() >> prefix_bits));
      store.Put(id, 0);
      model.insert(id);
      if (model.size() < check_at) continue;
      check_at = check_at * 9 / 8 + 1;
      std::set<int64_t> seen;
      store.rows.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t each, const char*) { seen.insert(each); });
      ASSERT_EQ(seen, model);
    }
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
      store.rows.Visit(first, last, [&](int64_t id, const char* row) {
        ASSERT_EQ(store.Get(id), 0);
        ASSERT_NE(row, nullptr);
        seen.insert(id);
      });
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
    store.rows.Erase(MixId(static_cast<uint64_t>(id - 10'000)));
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
