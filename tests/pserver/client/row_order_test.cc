// Compares the order in which ids travel, and sums of lanes in that order, with a simple implementation.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/client/id_order.h"
#include "pserver/client/lane_sums.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

uint64_t Key(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

// Returns the id with this key: the inverse of MixId.
int64_t IdOf(uint64_t key) {
  const auto inverse = [](uint64_t odd) {
    uint64_t x = odd;  // Newton's iteration doubles the right bits each time
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  const auto unshift = [](uint64_t x, int by) {
    uint64_t y = x;
    for (int done = by; done < 64; done += by) y = x ^ (y >> by);
    return y;
  };
  uint64_t x = unshift(key, 31) * inverse(0x94d049bb133111ebULL);
  x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9ULL);
  return static_cast<int64_t>(unshift(x, 30) - 0x9e3779b97f4a7c15ULL);
}

void ExpectOrdered(const std::vector<int64_t>& ids, uint32_t shards, int servers) {
  std::vector<uint32_t> expected(ids.size());
  std::iota(expected.begin(), expected.end(), 0u);
  std::sort(expected.begin(), expected.end(), [&](uint32_t a, uint32_t b) { return Key(ids[a]) < Key(ids[b]); });
  IdOrder order;
  order.Sort(ids, shards, servers);
  ASSERT_EQ(order.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(order[i], expected[i]) << "place " << i;
  for (int s = 0; s < servers; ++s) {
    for (size_t i = order.begin(s); i < order.begin(s + 1); ++i) {
      ASSERT_EQ(ShardServer(LogicalShard(ids[order[i]], shards), shards, servers), s);
    }
  }
  EXPECT_EQ(order.begin(0), 0u);
  EXPECT_EQ(order.begin(servers), ids.size());
}

TEST(IdOrderTest, IdsOfAnyNumberAscendByTheirKeysAndServersHaveTheirRuns) {
  std::mt19937_64 random(5);
  for (const size_t n : {0, 1, 2, 7, 64, 1000, 70'000, 300'000}) {
    std::vector<int64_t> ids(n);
    for (int64_t& id : ids) id = static_cast<int64_t>(random());
    ExpectOrdered(ids, 4096, 3);
    std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) { return Key(a) < Key(b); });
    ExpectOrdered(ids, 4096, 5);
  }
  ExpectOrdered({3, 1, 2}, 1, 2);
}

TEST(IdOrderTest, IdsWhoseKeysAreAlmostEqualAreOrderedToo) {
  // All keys are in one bucket, most with equal high halves.
  std::vector<int64_t> ids;
  std::mt19937_64 random(6);
  for (uint64_t low = 0; low < 500; ++low) ids.push_back(IdOf(0x7000000000000000u + low * 7));
  for (uint64_t high = 0; high < 500; ++high) ids.push_back(IdOf(0x7000000000000001u + (high << 32)));
  ASSERT_EQ(Key(ids[3]), 0x7000000000000000u + 21);
  std::shuffle(ids.begin(), ids.end(), random);
  ExpectOrdered(ids, 4096, 2);
}

TEST(IdOrderTest, WhatIsFinishedStandsBeforeTheRestIsSorted) {
  std::mt19937_64 random(8);
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 20'000; ++i) ids.push_back(static_cast<int64_t>(random()));
  // Many ids between two keys, and ids that differ only in the last digit of the key.
  for (uint64_t i = 0; i < 3'000; ++i) ids.push_back(IdOf(0x5000000000000000u + (random() >> 20)));
  for (uint64_t i = 0; i < 3'000; ++i) ids.push_back(IdOf(0x9000000000000000u + (i << 32)));
  std::shuffle(ids.begin(), ids.end(), random);
  IdOrder whole, order;
  whole.Sort(ids, 4096, 3);
  for (const size_t run : {1'000, 7'001, 26'000}) {
    order.Start(ids, 4096, 3);
    ASSERT_EQ(order.size(), ids.size());
    for (int s = 0; s <= 3; ++s) ASSERT_EQ(order.begin(s), whole.begin(s));
    for (size_t begin = 0; begin < ids.size(); begin += run) {
      const size_t end = std::min(begin + run, ids.size());
      order.Finish(begin, end);
      for (size_t i = begin; i < end; ++i) ASSERT_EQ(order[i], whole[i]) << "place " << i << " of runs of " << run;
    }
    order.Finish();
    for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(order[i], whole[i]);
  }
  ThreadPool pool("test", 3);
  order.Start(ids, 4096, 3);
  order.Finish(&pool);
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(order[i], whole[i]) << "place " << i << " on all threads";
}

SelectedRows Rows(std::vector<int32_t> positions, float first) {
  SelectedRows rows;
  rows.step_rows = positions;
  for (int32_t p : positions) rows.ids.push_back(p * 10);
  rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(positions.size()), 2});
  float* const values = rows.values.data<float>();
  for (size_t i = 0; i < positions.size() * 2; ++i) values[i] = first + static_cast<float>(i);
  return rows;
}

TEST(RowUnionTest, OneLaneIsCopiedAndSeveralAreAdded) {
  std::vector<int64_t> ids = {0, 10, 20, 30};
  IdOrder order;
  order.Sort(ids, 4096, 1);
  const SelectedRows a = Rows({2, 0}, 1), b = Rows({3, 2}, 100);
  const ParamChannel::LaneRows lanes[] = {{0, &a}, {1, &b}};
  const auto sums_of = [&](const LaneRange& node, std::vector<int64_t>* written) {
    RowUnion rows;
    EXPECT_TRUE(rows.Build(node, lanes, order, ids));
    const RowUnion::Range range = rows.At(order, ids, 0, order.size());
    written->resize(range.size());
    rows.WriteIds(ids, range, written->data());
    std::vector<float> sums(range.size() * 2), by_position(ids.size() * 2);
    rows.WriteSums(lanes, range, 2, sums.data());
    for (size_t i = 0; i < range.size(); ++i) {
      for (size_t j = 0; j < 2; ++j) by_position[static_cast<size_t>((*written)[i] / 10) * 2 + j] = sums[i * 2 + j];
    }
    return by_position;
  };
  std::vector<int64_t> written;
  EXPECT_THAT(sums_of({0, 1}, &written), ElementsAre(3, 4, 0, 0, 1, 2, 0, 0));
  EXPECT_EQ(written.size(), 2u);
  EXPECT_THAT(sums_of({0, 2}, &written), ElementsAre(3, 4, 0, 0, 103, 105, 100, 101));
  EXPECT_EQ(written.size(), 3u);
  EXPECT_TRUE(std::is_sorted(written.begin(), written.end(), [](int64_t x, int64_t y) { return Key(x) < Key(y); }));
}

TEST(RowUnionTest, ARangeOfTheOrderHasTheRowsOfItsIds) {
  std::mt19937_64 random(9);
  std::vector<int64_t> ids(2'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * 10;
  IdOrder order;
  order.Sort(ids, 4096, 1);
  std::vector<int32_t> some;
  for (int32_t i = 0; i < 2'000; ++i) {
    if (random() % 2 == 0) some.push_back(i);
  }
  const SelectedRows rows = Rows(some, 0);
  const ParamChannel::LaneRows lanes[] = {{0, &rows}};
  RowUnion all;
  ASSERT_TRUE(all.Build({0, 1}, lanes, order, ids));
  std::vector<int64_t> written;
  for (const size_t begin : {0, 300, 1'999}) {
    for (const size_t end : {300, 301, 1'999, 2'000}) {
      if (begin > end) continue;
      std::vector<int64_t> expected;
      for (size_t i = begin; i < end; ++i) {
        if (std::binary_search(some.begin(), some.end(), static_cast<int32_t>(order[i])))
          expected.push_back(ids[order[i]]);
      }
      const RowUnion::Range range = all.At(order, ids, begin, end);
      written.resize(range.size());
      all.WriteIds(ids, range, written.data());
      EXPECT_EQ(written, expected) << begin << " to " << end;
    }
  }
}

TEST(RowUnionTest, ShowsAndClicksAreAddedAsTheRowsAre) {
  const std::vector<int64_t> ids = {0, 10, 20, 30};
  IdOrder order;
  order.Sort(ids, 4096, 1);
  const SelectedRows a = Rows({2, 0}, 1), b = Rows({2}, 100);
  const Tensor of_a = Tensor::Of<float>({2, 2}, {3, 1, 5, 0}), of_b = Tensor::Of<float>({1, 2}, {1, 1});
  const StepChannel::LaneRows lanes[] = {{0, &a, &of_a}, {1, &b, &of_b}};
  RowUnion rows;
  ASSERT_TRUE(rows.Build({0, 2}, lanes, order, ids));
  const RowUnion::Range range = rows.At(order, ids, 0, order.size());
  ASSERT_EQ(range.size(), 2u);
  std::vector<int64_t> written(2);
  std::vector<float> counts(4);
  rows.WriteIds(ids, range, written.data());
  rows.WriteCounts(lanes, range, counts.data());
  if (written[0] == 0) std::rotate(counts.begin(), counts.begin() + 2, counts.end());
  EXPECT_THAT(counts, ElementsAre(4, 2, 5, 0));  // of id 20, which both lanes have, and of id 0
}

TEST(RowUnionTest, ARangeKnowsTheIdOfTheRowBeforeIt) {
  const std::vector<int64_t> ids = {0, 10, 20, 30};
  IdOrder order;
  order.Sort(ids, 4096, 1);
  const SelectedRows some = Rows({3, 0, 2}, 0);
  const StepChannel::LaneRows lanes[] = {{0, &some}};
  RowUnion rows;
  ASSERT_TRUE(rows.Build({0, 1}, lanes, order, ids));
  std::vector<int64_t> written(3);
  rows.WriteIds(ids, {0, 3}, written.data());
  EXPECT_EQ(rows.Before(ids, {0, 3}), nullptr);
  ASSERT_NE(rows.Before(ids, {2, 3}), nullptr);
  EXPECT_EQ(*rows.Before(ids, {2, 3}), written[1]);
}

// Computes a row's sum in the tree of `leaves` lanes by definition; null if no lane has the row.
std::unique_ptr<std::vector<float>> TreeSum(const std::vector<std::map<int32_t, const float*>>& leaves, size_t begin,
                                            size_t size, int32_t position, int width) {
  if (size == 1) {
    const auto row = leaves[begin].find(position);
    if (row == leaves[begin].end()) return nullptr;
    return std::make_unique<std::vector<float>>(row->second, row->second + width);
  }
  auto left = TreeSum(leaves, begin, size / 2, position, width),
       right = TreeSum(leaves, begin + size / 2, size / 2, position, width);
  if (left == nullptr || right == nullptr) return left == nullptr ? std::move(right) : std::move(left);
  for (int j = 0; j < width; ++j) (*left)[static_cast<size_t>(j)] += (*right)[static_cast<size_t>(j)];
  return left;
}

TEST(RowUnionTest, EveryWidthAndEveryNumberOfLanesGivesTheSumOfTheTree) {
  std::mt19937_64 random(8);
  for (const int width : {1, 2, 3, 4, 8, 16, 17, 32, 40}) {
    for (const size_t leaves : {1, 2, 4, 8, 16, 64}) {
      std::vector<int64_t> ids(150);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(random());
      IdOrder order;
      order.Sort(ids, 4096, 1);
      std::vector<SelectedRows> of_lane(leaves);
      std::vector<std::map<int32_t, const float*>> placed(leaves);
      std::vector<ParamChannel::LaneRows> lanes;
      for (size_t l = 0; l < leaves; ++l) {
        std::vector<int32_t> positions;
        for (int32_t i = 0; i < 150; ++i) {
          // Some ids are in few lanes, some in all.
          if (i % 10 == 9 || random() % 10 < static_cast<uint64_t>(i % 10)) positions.push_back(i);
        }
        std::shuffle(positions.begin(), positions.end(), random);
        const int64_t n = static_cast<int64_t>(positions.size());
        of_lane[l].step_rows = positions;
        of_lane[l].ids.assign(positions.begin(), positions.end());
        of_lane[l].values.Resize(v1::FLOAT32, {n, width});
        float* const values = of_lane[l].values.data<float>();
        for (int64_t i = 0; i < n * width; ++i)
          values[i] = random() % 50 == 0 ? -0.0f : static_cast<float>(random() % 1000003) * 1e-3f;
        for (size_t i = 0; i < positions.size(); ++i) placed[l][positions[i]] = values + i * static_cast<size_t>(width);
        lanes.push_back({static_cast<int>(l), &of_lane[l]});
      }
      RowUnion rows;
      ASSERT_TRUE(rows.Build({0, static_cast<int>(leaves)}, lanes, order, ids));
      const RowUnion::Range range = rows.At(order, ids, 0, order.size());
      std::vector<int64_t> written(range.size());
      rows.WriteIds(ids, range, written.data());
      std::vector<float> sums(range.size() * static_cast<size_t>(width));
      rows.WriteSums(lanes, range, width, sums.data());
      for (size_t i = 0; i < range.size(); ++i) {
        const auto position = std::find(ids.begin(), ids.end(), written[i]) - ids.begin();
        const auto expected = TreeSum(placed, 0, leaves, static_cast<int32_t>(position), width);
        ASSERT_NE(expected, nullptr);
        ASSERT_EQ(std::memcmp(sums.data() + i * static_cast<size_t>(width), expected->data(),
                              expected->size() * sizeof(float)),
                  0)
            << "width " << width << ", " << leaves << " lanes";
      }
    }
  }
}

TEST(RowUnionTest, AnIdTwiceInALaneOrOutsideTheStepIsRefused) {
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{1, 1}, {4}, {-1}}) {
    const SelectedRows rows = Rows(wrong, 0), other = Rows({0}, 0);
    const std::vector<int64_t> ids = {0, 10, 20, 30};
    IdOrder order;
    order.Sort(ids, 4096, 1);
    const ParamChannel::LaneRows one[] = {{0, &rows}};
    EXPECT_FALSE(RowUnion().Build({0, 1}, one, order, ids));
    const ParamChannel::LaneRows two[] = {{0, &other}, {1, &rows}};
    EXPECT_FALSE(RowUnion().Build({0, 2}, two, order, ids));
    // An invalid set stays invalid after a valid one.
    const ParamChannel::LaneRows right[] = {{0, &other}};
    StepUnions unions;
    std::vector<RowUnion> own;
    EXPECT_NE(unions.Of(std::vector<LaneRange>{{0, 2}}, right, order, ids, &own), nullptr);
    EXPECT_EQ(unions.Of(std::vector<LaneRange>{{0, 2}}, two, order, ids, &own), nullptr);
    unions.Reset();
    EXPECT_EQ(unions.Of(std::vector<LaneRange>{{0, 2}}, two, order, ids, &own), nullptr);
    EXPECT_NE(unions.Of(std::vector<LaneRange>{{0, 2}}, right, order, ids, &own), nullptr);
  }
}

TEST(StepUnionsTest, LanesThatBringTheSameRowsShareAndOthersDoNot) {
  const std::vector<int64_t> ids = {0, 10, 20, 30};
  IdOrder order;
  order.Sort(ids, 4096, 1);
  const std::vector<LaneRange> nodes = {{0, 2}, {2, 1}};
  const SelectedRows a = Rows({2, 0}, 1), b = Rows({3, 2}, 100), again = Rows({2, 0}, 50), turned = Rows({0, 2}, 50);
  const ParamChannel::LaneRows first[] = {{0, &a}, {2, &b}}, same[] = {{0, &again}, {2, &b}},
                               other[] = {{0, &turned}, {2, &b}}, elsewhere[] = {{1, &a}, {2, &b}}, fewer[] = {{0, &a}};
  StepUnions unions;
  std::vector<RowUnion> own;
  const std::vector<RowUnion>* const made = unions.Of(nodes, first, order, ids, &own);
  ASSERT_NE(made, nullptr);
  ASSERT_NE(made, &own);
  EXPECT_EQ(unions.Of(nodes, same, order, ids, &own), made);
  // Returns the sums of both nodes over `lanes`, by position in ids; -1 where there is none.
  const auto sums_of = [&](const std::vector<RowUnion>& rows, absl::Span<const ParamChannel::LaneRows> lanes) {
    std::vector<float> by_position(ids.size(), -1);
    for (const RowUnion& node : rows) {
      const RowUnion::Range range = node.At(order, ids, 0, order.size());
      std::vector<int64_t> written(range.size());
      std::vector<float> sums(range.size() * 2);
      node.WriteIds(ids, range, written.data());
      node.WriteSums(lanes, range, 2, sums.data());
      for (size_t i = 0; i < range.size(); ++i) by_position[static_cast<size_t>(written[i] / 10)] = sums[i * 2];
    }
    return by_position;
  };
  EXPECT_THAT(sums_of(*made, same), ElementsAre(52, -1, 102, 100));
  for (const absl::Span<const ParamChannel::LaneRows> lanes :
       {absl::MakeConstSpan(other), absl::MakeConstSpan(elsewhere)}) {
    EXPECT_EQ(unions.Of(nodes, lanes, order, ids, &own), &own);
  }
  EXPECT_EQ(unions.Of(nodes, other, order, ids, &own), &own);
  EXPECT_THAT(sums_of(own, other), ElementsAre(50, -1, 102, 100));
  EXPECT_EQ(unions.Of(nodes, fewer, order, ids, &own), &own);
  EXPECT_THAT(sums_of(own, fewer), ElementsAre(3, -1, 1, -1));
  // Later unions leave the first one unchanged.
  EXPECT_THAT(sums_of(*made, first), ElementsAre(3, -1, 102, 100));
  unions.Reset();
  EXPECT_EQ(unions.Of(nodes, other, order, ids, &own), made);
  EXPECT_THAT(sums_of(*made, other), ElementsAre(50, -1, 102, 100));
}

}  // namespace
}  // namespace weir
