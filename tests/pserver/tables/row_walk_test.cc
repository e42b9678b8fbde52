#include "pserver/tables/row_walk.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "framework/base/stable_hash.h"
#include "gtest/gtest.h"
#include "pserver/tables/row_store.h"

namespace weir {
namespace {

constexpr int64_t kWalkedBytes = 128;

uint64_t MixOf(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

using Handle = std::function<bool(int64_t k, uint64_t mixed, char* row)>;

// A walk in each form, whatever the processor.
enum class Form { kEach, kTogetherFirst, kTogetherSecond };

void WalkIn(Form form, const RowStore& store, const std::vector<int64_t>& ids, const Handle& handle,
            const SeenRows& seen = SeenRows()) {
  const auto id = [&](int64_t k) { return ids[static_cast<size_t>(k)]; };
  const int64_t n = static_cast<int64_t>(ids.size());
  if (form == Form::kEach) return WalkEach(store, n, kWalkedBytes, id, handle, seen);
  if (form == Form::kTogetherFirst) {
    return WalkTogether<FetchLevel::kFirst>(store, n, kWalkedBytes, id, handle, seen);
  }
  WalkTogether<FetchLevel::kSecond>(store, n, kWalkedBytes, id, handle, seen);
}

class RowWalkTest : public ::testing::TestWithParam<Form> {
 protected:
  RowWalkTest() { store_.Init(&chunks_, &pages_, kWalkedBytes, 0, 0, 0); }

  // Adds rows for the ids [0, 3 n) that are multiples of 3.
  void AddRows(int64_t n) {
    for (int64_t id = 0; id < 3 * n; id += 3) store_.Insert(MixOf(id));
  }
  // Ids of which about a third have a row, with repetitions.
  std::vector<int64_t> DrawIds(int64_t n, int64_t range) {
    std::vector<int64_t> ids;
    for (int64_t k = 0; k < n; ++k) ids.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(range)));
    return ids;
  }

  std::mt19937_64 random_{11};
  ChunkMemory chunks_{static_cast<size_t>(kWalkedBytes) << ChunkLog2(kWalkedBytes)};
  ChunkMemory pages_{kIndexPageBytes};
  RowStore store_;
};

INSTANTIATE_TEST_SUITE_P(Forms, RowWalkTest,
                         ::testing::Values(Form::kEach, Form::kTogetherFirst, Form::kTogetherSecond));

TEST_P(RowWalkTest, EveryIdComesOnceInOrderWithWhatFindGives) {
  AddRows(20'000);
  for (const int64_t n : {0, 1, 7, 8, 9, 16, 17, 31, 32, 33, 48, 65, 5000}) {
    const std::vector<int64_t> ids = DrawIds(n, 60'000);
    int64_t next = 0;
    WalkIn(GetParam(), store_, ids, [&](int64_t k, uint64_t mixed, char* row) {
      EXPECT_EQ(k, next++);
      EXPECT_EQ(mixed, MixOf(ids[static_cast<size_t>(k)]));
      EXPECT_EQ(row, store_.Find(mixed));
      return true;
    });
    EXPECT_EQ(next, n);
  }
}

// The index grows meanwhile, and an id that repeats has the row that its first occurrence was given.
TEST_P(RowWalkTest, RowsMayBeInsertedOnTheWay) {
  AddRows(10);
  const std::vector<int64_t> ids = DrawIds(5000, 2000);
  WalkIn(GetParam(), store_, ids, [&](int64_t, uint64_t mixed, char* row) {
    EXPECT_EQ(row, store_.Find(mixed));
    return row != nullptr || store_.Insert(mixed) != nullptr;
  });
  for (const int64_t id : ids) EXPECT_NE(store_.Find(MixOf(id)), nullptr) << id;
}

TEST_P(RowWalkTest, RowsThatWereSeenAreNotLookedUp) {
  AddRows(1000);
  std::vector<int64_t> ids = DrawIds(1000, 3000);
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) { return MixOf(a) < MixOf(b); });
  // Every other one, at a place that the index does not know.
  std::vector<char> elsewhere(kWalkedBytes * ids.size());
  SeenRows seen;
  seen.Reserve(static_cast<int64_t>(ids.size()));
  for (size_t k = 0; k < ids.size(); k += 2) seen.Add(MixOf(ids[k]), elsewhere.data() + kWalkedBytes * k);
  const auto expected = [&](uint64_t mixed) {
    size_t at = 0;
    char* const row = seen.Find(mixed, &at);
    return row != nullptr ? row : store_.Find(mixed);
  };
  WalkIn(
      GetParam(), store_, ids,
      [&](int64_t, uint64_t mixed, char* row) {
        EXPECT_EQ(row, expected(mixed));
        return true;
      },
      seen);
}

TEST_P(RowWalkTest, AWalkEndsWhenItsFunctionSaysSo) {
  AddRows(100);
  int64_t calls = 0;
  WalkIn(GetParam(), store_, DrawIds(100, 300), [&](int64_t, uint64_t, char*) { return ++calls < 40; });
  EXPECT_EQ(calls, 40);
}

TEST(SeenRowsTest, OnlyRowsAboveTheLastAreAddedAndNoMoreThanThereIsRoomFor) {
  SeenRows seen;
  char rows[4];
  seen.Add(5, rows);
  EXPECT_TRUE(seen.empty());
  seen.Reserve(2);
  seen.Add(5, rows);
  seen.Add(4, rows + 1);
  seen.Add(5, rows + 1);
  seen.Add(7, rows + 2);
  seen.Add(8, rows + 3);
  size_t at = 0;
  EXPECT_EQ(seen.Find(4, &at), nullptr);
  EXPECT_EQ(seen.Find(5, &at), rows);
  EXPECT_EQ(seen.Find(7, &at), rows + 2);
  EXPECT_EQ(seen.Find(8, &at), nullptr);
  seen.Clear();
  seen.Add(3, rows);
  at = 0;
  EXPECT_EQ(seen.Find(3, &at), rows);
  EXPECT_EQ(seen.Find(7, &at), nullptr);
}

}  // namespace
}  // namespace weir
