// How a table's shards, and the ids of a batch, are cut into stripes.
#include "pserver/tables/stripe_map.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

uint64_t Mixed(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

// Ids [0, n) whose shard the server holds, by ascending MixId.
std::vector<int64_t> OwnedIds(const StripeMap& map, int64_t n) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < n; ++id) {
    if (map.OwnsShard(map.ShardOf(Mixed(id)))) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) { return Mixed(a) < Mixed(b); });
  return ids;
}

std::vector<std::set<int64_t>> Cut(const StripeMap& map, const std::vector<int64_t>& ids) {
  StripeMap::Sections sections;
  EXPECT_EQ(map.Partition(ids, &sections), std::nullopt);
  std::vector<std::set<int64_t>> cut;
  for (int s = 0; s < map.stripes(); ++s) {
    const StripeIds section = sections.Of(s, ids);
    cut.emplace_back();
    for (int64_t k = 0; k < section.size; ++k) {
      EXPECT_EQ(section.Id(k), ids[static_cast<size_t>(section.Position(k))]);
      EXPECT_EQ(map.StripeOf(Mixed(section.Id(k))), s);
      cut.back().insert(section.Id(k));
    }
  }
  return cut;
}

TEST(StripeMapTest, StripesAreGroupsOfShardsAndCoverThoseOfTheServer) {
  // Groups of 4: shards 5..7, 8..11, 12..13.
  const StripeMap map(/*logical_shards=*/16, /*shard_begin=*/5, /*shard_end=*/14, /*stripes=*/2);
  EXPECT_EQ(map.shards_per_stripe(), 4u);
  ASSERT_EQ(map.stripes(), 3);
  EXPECT_THAT(map.ShardsOf(0), Pair(5u, 8u));
  EXPECT_THAT(map.ShardsOf(1), Pair(8u, 12u));
  EXPECT_THAT(map.ShardsOf(2), Pair(12u, 14u));
  EXPECT_EQ(map.StripeBegin(1), uint64_t{8} << 60);
  EXPECT_THAT(map.StripeRange(0), Pair(uint64_t{5} << 60, (uint64_t{8} << 60) - 1));
  EXPECT_EQ(map.prefix_bits(), 2);
}

TEST(StripeMapTest, ATableOfOneShardIsOneStripeOfAllIds) {
  const StripeMap map(1, 0, 1, 64);
  ASSERT_EQ(map.stripes(), 1);
  EXPECT_THAT(map.StripeRange(0), Pair(0u, std::numeric_limits<uint64_t>::max()));
}

TEST(StripeMapTest, AServerWithoutShardsHasNoStripe) { EXPECT_EQ(StripeMap(4, 2, 2, 64).stripes(), 0); }

TEST(StripeMapTest, ABatchIsCutAlikeInAnyOrder) {
  const StripeMap map(64, 7, 50, 5);
  std::vector<int64_t> ids = OwnedIds(map, 500);
  const std::vector<std::set<int64_t>> sorted = Cut(map, ids);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(Cut(map, ids), sorted);
  size_t sum = 0;
  for (const std::set<int64_t>& stripe : sorted) sum += stripe.size();
  EXPECT_EQ(sum, ids.size());
}

TEST(StripeMapTest, ASortedBatchNeedsNoOrder) {
  const StripeMap map(64, 0, 64, 8);
  StripeMap::Sections sections;
  EXPECT_EQ(map.Partition(OwnedIds(map, 100), &sections), std::nullopt);
  EXPECT_THAT(sections.order, IsEmpty());
}

TEST(StripeMapTest, AnIdOfAnotherServerIsNamed) {
  const StripeMap map(2, 0, 1, 1);
  std::vector<int64_t> ids = OwnedIds(map, 100);
  int64_t foreign = 0;
  while (map.OwnsShard(map.ShardOf(Mixed(foreign)))) ++foreign;
  StripeMap::Sections sections;
  ids.push_back(foreign);
  EXPECT_THAT(map.Partition(ids, &sections), Optional(foreign));
  std::swap(ids.front(), ids.back());
  EXPECT_THAT(map.Partition(ids, &sections), Optional(foreign));
}

}  // namespace
}  // namespace weir
