#include "ops/item_ranks.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/thread_pool.h"
#include "gtest/gtest.h"
#include "ops/vector_unit.h"

namespace weir {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return values;
}

float Product(const float* x, const float* y, int64_t width) {
  float sum = 0;
  for (int64_t k = 0; k < width; ++k) sum = std::fma(x[k], y[k], sum);
  return sum;
}

ItemRank PlainRank(const std::vector<float>& items, int64_t width, const RankQuery& query) {
  const std::set<int64_t> without(query.without.begin(), query.without.end());
  const float own = Product(query.vector, items.data() + query.item * width, width);
  ItemRank rank;
  for (int64_t i = 0; i < static_cast<int64_t>(items.size()) / width; ++i) {
    if (i == query.item || without.contains(i)) continue;
    const float product = Product(query.vector, items.data() + i * width, width);
    rank.above += std::isnan(own) || product > own;
    rank.equal += product == own;
  }
  return rank;
}

std::vector<ItemRank> Ranks(const std::vector<float>& vectors, int64_t width, const std::vector<RankQuery>& queries,
                            ThreadPool* pool = nullptr) {
  const int64_t count = static_cast<int64_t>(vectors.size()) / width;
  PackedItems items(count, width);
  // In parts that end within a panel.
  const int64_t cut = count / 3;
  items.Set(cut, count - cut, vectors.data() + cut * width);
  items.Set(0, cut, vectors.data());
  std::vector<ItemRank> ranks(queries.size());
  RankItems(items, queries, pool, ranks.data());
  return ranks;
}

// Every vector unit of the machine, one by one.
class ItemRanksTest : public testing::TestWithParam<VectorUnit> {
 protected:
  void SetUp() override {
    before_ = CurrentVectorUnit();
    if (!SetVectorUnitForTest(GetParam())) GTEST_SKIP() << "this processor does not have the vector unit";
  }
  void TearDown() override { SetVectorUnitForTest(before_); }

 private:
  VectorUnit before_ = VectorUnit::kPlain;
};

INSTANTIATE_TEST_SUITE_P(Units, ItemRanksTest,
                         testing::Values(VectorUnit::kPlain, VectorUnit::kAvx2, VectorUnit::kAvx512),
                         [](const testing::TestParamInfo<VectorUnit>& info) {
                           return info.param == VectorUnit::kPlain  ? "Plain"
                                  : info.param == VectorUnit::kAvx2 ? "Avx2"
                                                                    : "Avx512";
                         });

TEST_P(ItemRanksTest, AreThoseOfAPlainLoop) {
  for (const int64_t width : {1, 3, 16, 33, 64}) {
    for (const int64_t items : {1, 2, 31, 32, 33, 500}) {
      for (const int64_t count : {1, 5, 6, 7, 11, 12, 13, 40}) {
        SCOPED_TRACE(absl::StrCat(items, " items of width ", width, ", ", count, " queries"));
        const std::vector<float> vectors = Numbers(items * width, 1), queries = Numbers(count * width, 2);
        // Of one element, so that some products are equal.
        std::vector<float> rounded;
        for (const float x : vectors) rounded.push_back(width == 1 ? std::round(8 * x) : x);
        std::vector<std::vector<int64_t>> without(static_cast<size_t>(count));
        std::vector<RankQuery> wanted;
        for (int64_t q = 0; q < count; ++q) {
          std::vector<int64_t>& out = without[static_cast<size_t>(q)];
          for (int64_t i = 0; i < q; ++i) out.push_back((i * 7 + q) % items);
          wanted.push_back({queries.data() + q * width, (q * 13) % items, out});
        }
        const std::vector<ItemRank> ranks = Ranks(rounded, width, wanted);
        for (size_t q = 0; q < wanted.size(); ++q) {
          const ItemRank plain = PlainRank(rounded, width, wanted[q]);
          ASSERT_EQ(ranks[q].above, plain.above) << "query " << q;
          ASSERT_EQ(ranks[q].equal, plain.equal) << "query " << q;
        }
      }
    }
  }
}

// Several tiles of items pass by each group of queries.
TEST_P(ItemRanksTest, ManyItemsAreThoseOfAPlainLoop) {
  constexpr int64_t kWidth = 64, kItems = 3333, kQueries = 29;
  const std::vector<float> vectors = Numbers(kItems * kWidth, 7), queries = Numbers(kQueries * kWidth, 8);
  std::vector<RankQuery> wanted;
  for (int64_t q = 0; q < kQueries; ++q) wanted.push_back({queries.data() + q * kWidth, q * 113});
  const std::vector<ItemRank> ranks = Ranks(vectors, kWidth, wanted);
  for (size_t q = 0; q < wanted.size(); ++q) {
    const ItemRank plain = PlainRank(vectors, kWidth, wanted[q]);
    EXPECT_EQ(ranks[q].above, plain.above) << "query " << q;
    EXPECT_EQ(ranks[q].equal, plain.equal) << "query " << q;
  }
}

TEST_P(ItemRanksTest, ItemsWithOneVectorAreEqual) {
  const std::vector<float> one = Numbers(7, 3), query = Numbers(7, 4);
  std::vector<float> vectors;
  for (int i = 0; i < 100; ++i) vectors.insert(vectors.end(), one.begin(), one.end());
  const std::vector<int64_t> without = {5, 99, 99, 17};
  const std::vector<ItemRank> ranks = Ranks(vectors, 7, {{query.data(), 17, without}});
  EXPECT_EQ(ranks[0].above, 0);
  EXPECT_EQ(ranks[0].equal, 97);
}

TEST_P(ItemRanksTest, ANaNIsBelowEveryNumber) {
  const std::vector<float> vectors = {1, kNan, 3, kInfinity, -kInfinity, 0};
  const float one = 1, zero = 0;
  // Products with 0 of what is infinite are no numbers either.
  const std::vector<int64_t> without = {0, 0, 5};
  const std::vector<ItemRank> ranks =
      Ranks(vectors, 1, {{&one, 0}, {&one, 1}, {&one, 3}, {&one, 4}, {&zero, 0}, {&one, 1, without}});
  EXPECT_EQ(ranks[0].above, 2);
  EXPECT_EQ(ranks[1].above, 5);
  EXPECT_EQ(ranks[1].equal, 0);
  EXPECT_EQ(ranks[2].above, 0);
  EXPECT_EQ(ranks[3].above, 4);
  EXPECT_EQ(ranks[4].above, 0);
  EXPECT_EQ(ranks[4].equal, 2);
  EXPECT_EQ(ranks[5].above, 3);
}

TEST(ItemRanksThreadsTest, AreTheSameOnAnyNumberOfThreads) {
  constexpr int64_t kWidth = 20, kItems = 1000, kQueries = 700;
  const std::vector<float> vectors = Numbers(kItems * kWidth, 5), queries = Numbers(kQueries * kWidth, 6);
  std::vector<RankQuery> wanted;
  for (int64_t q = 0; q < kQueries; ++q) wanted.push_back({queries.data() + q * kWidth, q});
  const std::vector<ItemRank> alone = Ranks(vectors, kWidth, wanted);
  for (const int threads : {0, 1, 3}) {
    ThreadPool pool("ranks", threads);
    const std::vector<ItemRank> ranks = Ranks(vectors, kWidth, wanted, &pool);
    for (size_t q = 0; q < wanted.size(); ++q) {
      ASSERT_EQ(ranks[q].above, alone[q].above);
      ASSERT_EQ(ranks[q].equal, alone[q].equal);
    }
  }
}

TEST(ItemRanksThreadsTest, NoQueriesHaveNoRanks) { EXPECT_TRUE(Ranks({1, 2}, 1, {}).empty()); }

}  // namespace
}  // namespace weir
