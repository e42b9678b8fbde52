#include "pserver/protocol/merge_gradients.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(SumDenseTest, NodesAreAddedInTheTreeAndAbsentOnesSkipped) {
  // Chosen so that another order gives another float: (big + small) + -big = 0, big + (small + -big) = ... in pairs.
  const std::vector<float> a = {1e8f}, b = {1.0f}, c = {-1e8f};
  std::vector<float> out(1);
  // Leaves 0, 1, 2: (a + b) + c.
  ASSERT_TRUE(SumDense({{{2, 1}, 0, c}, {{0, 1}, 0, a}, {{1, 1}, 0, b}}, 4, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out[0], (a[0] + b[0]) + c[0]);
  // Leaves 1, 2, 3: b + (a + c).
  ASSERT_TRUE(SumDense({{{2, 1}, 0, a}, {{1, 1}, 0, b}, {{3, 1}, 0, c}}, 4, absl::MakeSpan(out)).ok());
  EXPECT_EQ(out[0], b[0] + (a[0] + c[0]));
  EXPECT_EQ(out[0], 1.0f);
}

TEST(SumDenseTest, OneNodeIsCopiedToTheBit) {
  const std::vector<float> a = {-0.0f, 3.0f};
  std::vector<float> out(2, 9);
  ASSERT_TRUE(SumDense({{{4, 4}, 0, a}}, 8, absl::MakeSpan(out)).ok());
  EXPECT_TRUE(std::signbit(out[0]));
}

TEST(SumDenseTest, PiecesOfAnySizeGiveTheSumOfTheWhole) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const size_t count = 1 + random() % 5000;
    std::vector<std::vector<float>> nodes(1 + random() % 8);
    std::vector<DenseRun> whole, cut;
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (size_t i = 0; i < count; ++i) nodes[n].push_back(static_cast<float>(random() % 1000003) * 1e-3f);
      const LaneRange node{static_cast<int>(n), 1};
      whole.push_back({node, 0, nodes[n]});
      for (size_t begin = 0; begin < count;) {
        const size_t size = std::min<size_t>(count - begin, 1 + random() % 2000);
        cut.push_back({node, static_cast<int64_t>(begin), absl::MakeConstSpan(nodes[n]).subspan(begin, size)});
        begin += size;
      }
    }
    std::shuffle(cut.begin(), cut.end(), random);
    std::vector<float> one(count), other(count);
    ASSERT_TRUE(SumDense(whole, 8, absl::MakeSpan(one)).ok());
    ASSERT_TRUE(SumDense(cut, 8, absl::MakeSpan(other)).ok());
    ASSERT_EQ(one, other);
  }
}

TEST(SumDenseTest, GapsAndOverlapsAreRefused) {
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  std::vector<float> out(4);
  for (const std::vector<DenseRun>& runs : std::vector<std::vector<DenseRun>>{
           {{{0, 1}, 0, two}},
           {{{0, 1}, 0, two}, {{0, 1}, 1, three}},
           {{{0, 1}, 0, two}, {{0, 1}, 0, two}},
           {{{0, 1}, 0, three}, {{1, 1}, 0, two}, {{1, 1}, 2, two}},
       }) {
    EXPECT_EQ(SumDense(runs, 2, absl::MakeSpan(out)).code(), absl::StatusCode::kInvalidArgument);
  }
}

bool ByMixedId(int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); }

// Sum of the present leaves of a tree, as its definition says.
const std::vector<float>* TreeSum(std::vector<std::vector<float>>& leaves, size_t begin, size_t size) {
  if (size == 1) return leaves[begin].empty() ? nullptr : &leaves[begin];
  const std::vector<float>* const left = TreeSum(leaves, begin, size / 2);
  const std::vector<float>* const right = TreeSum(leaves, begin + size / 2, size / 2);
  if (left == nullptr || right == nullptr) return left == nullptr ? right : left;
  std::vector<float> sum(left->size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = (*left)[i] + (*right)[i];
  leaves[begin] = sum;
  return &leaves[begin];
}

TEST(SumDenseTest, WhateverNodesAreThereItIsTheSumOfTheTreeToTheBit) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const size_t lanes = size_t{1} << random() % 5, count = 1 + random() % 3000;
    std::vector<std::vector<float>> leaves(lanes);
    std::vector<DenseRun> runs;
    const bool all = random() % 2 == 0;
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (!all && random() % 3 == 0) continue;
      for (size_t i = 0; i < count; ++i) {
        leaves[lane].push_back(random() % 100 == 0 ? -0.0f : static_cast<float>(random() % 1000003) * 1e-3f - 500);
      }
      runs.push_back({{static_cast<int>(lane), 1}, 0, leaves[lane]});
    }
    if (runs.empty()) continue;
    std::vector<float> sum(count);
    ASSERT_TRUE(SumDense(runs, static_cast<int>(lanes), absl::MakeSpan(sum)).ok());
    std::vector<std::vector<float>> model = leaves;
    ASSERT_EQ(std::memcmp(sum.data(), TreeSum(model, 0, lanes)->data(), count * sizeof(float)), 0)
        << runs.size() << " of " << lanes;
  }
}

// Rows of one node for tests, in the order in which a trainer has them or sorted.
struct TestRun {
  std::vector<int64_t> ids;
  std::vector<float> values;
  std::vector<uint32_t> order;

  TestRun(std::vector<int64_t> of, bool shuffled, std::mt19937_64& random) : ids(std::move(of)) {
    std::sort(ids.begin(), ids.end(), ByMixedId);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (!shuffled) return;
    std::shuffle(ids.begin(), ids.end(), random);
    for (size_t i = 0; i < ids.size(); ++i) order.push_back(static_cast<uint32_t>(i));
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return ByMixedId(ids[a], ids[b]); });
  }
  RowRun At(LaneRange node) const { return {node, ids, values.data(), order.empty() ? nullptr : order.data()}; }
};

TEST(MergeRowsTest, IsTheUnionByIdWithEachRowAddedInTheTree) {
  std::mt19937_64 random(6);
  MergedRows merged;  // used again and again, as on a server
  for (int round = 0; round < 600; ++round) {
    const int width = 1 + static_cast<int>(random() % 5);
    const size_t lanes = size_t{1} << random() % 8, different = random() % 2 == 0 ? 20 : 300;
    std::vector<std::unique_ptr<TestRun>> runs;
    std::vector<RowRun> inputs;
    std::map<int64_t, std::vector<std::vector<float>>> model;
    size_t node = 1;
    for (size_t lane = 0; lane < lanes; lane += node) {
      // An aligned node of the tree, which has its sum already.
      node = 1;
      while (lane % (2 * node) == 0 && 2 * node <= lanes && random() % 3 == 0) node *= 2;
      if (random() % 4 == 0) continue;
      std::vector<int64_t> parts[2];
      const size_t of = 1 + random() % 2;
      for (size_t i = random() % 100; i > 0; --i) {
        const auto id = static_cast<int64_t>(random() % different);
        parts[static_cast<size_t>(id) % of].push_back(id - 20);
      }
      for (size_t part = 0; part < of; ++part) {
        runs.push_back(std::make_unique<TestRun>(parts[part], random() % 2 == 0, random));
        TestRun& run = *runs.back();
        for (int64_t id : run.ids) {
          auto& leaves = model.try_emplace(id, lanes).first->second;
          for (int j = 0; j < width; ++j) {
            run.values.push_back(random() % 50 == 0 ? -0.0f : static_cast<float>(random() % 1000003) * 1e-3f - 500);
            leaves[lane].push_back(run.values.back());
          }
        }
        inputs.push_back(run.At({static_cast<int>(lane), static_cast<int>(node)}));
      }
    }
    std::shuffle(inputs.begin(), inputs.end(), random);
    // In two halves of the order of ids, as two stripes would.
    const uint64_t middle = random();
    std::map<int64_t, std::vector<float>> got;
    for (const auto& [first, last] :
         std::vector<std::pair<uint64_t, uint64_t>>{{0, middle}, {middle + 1, UINT64_MAX}}) {
      ASSERT_TRUE(MergeRows(inputs, width, first, last, &merged).ok());
      EXPECT_TRUE(std::is_sorted(merged.ids.begin(), merged.ids.end(), ByMixedId));
      for (size_t i = 0; i < merged.ids.size(); ++i) {
        EXPECT_TRUE(got.emplace(merged.ids[i], std::vector<float>(merged.grads[i], merged.grads[i] + width)).second);
      }
    }
    ASSERT_EQ(got.size(), model.size());
    for (auto& [id, leaves] : model) {
      const std::vector<float>& expected = *TreeSum(leaves, 0, lanes);
      EXPECT_EQ(std::memcmp(got[id].data(), expected.data(), static_cast<size_t>(width) * sizeof(float)), 0) << id;
    }
  }
}

TEST(MergeRowsTest, RowsOfAStripeAreThoseBetweenItsBoundsHoweverIdsAreSpread) {
  std::mt19937_64 random(8);
  std::vector<int64_t> all(20000);
  for (int64_t& id : all) id = static_cast<int64_t>(random());
  // The ids whose keys are the lowest and the highest that there are.
  for (const uint64_t key : {uint64_t{0}, UINT64_MAX}) all.push_back(static_cast<int64_t>(UnmixId(key)));
  std::sort(all.begin(), all.end(), ByMixedId);
  MergedRows merged;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> ids;
    // Even, all but a few at one end, and in two heaps.
    const size_t few = random() % 4, most = random() % all.size();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool taken = round % 3 == 0   ? i % (1 + few) == 0
                         : round % 3 == 1 ? i <= most || i + few >= all.size()
                                          : i < 300 || i + 300 > all.size();
      if (taken) ids.push_back(all[i]);
    }
    TestRun run(ids, random() % 2 == 0, random);
    run.values.assign(run.ids.size(), 1);
    const auto bound = [&] {
      if (random() % 3 == 0) return uint64_t{random()};
      return MixId(static_cast<uint64_t>(ids[random() % ids.size()])) + random() % 3 - 1;
    };
    const uint64_t a = bound(), b = bound();
    ASSERT_TRUE(MergeRows({run.At({0, 1})}, 1, std::min(a, b), std::max(a, b), &merged).ok());
    std::vector<int64_t> expected;
    for (const int64_t id : ids) {
      const uint64_t key = MixId(static_cast<uint64_t>(id));
      if (key >= std::min(a, b) && key <= std::max(a, b)) expected.push_back(id);
    }
    ASSERT_EQ(merged.ids, expected) << round;
  }
}

TEST(MergeRowsTest, PartsOfOnePushBehindOneAnotherAreTakenAsTheyAre) {
  std::vector<int64_t> ids(50);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  const std::vector<int64_t> first(ids.begin(), ids.begin() + 20), last(ids.rbegin(), ids.rend() - 20);
  std::vector<uint32_t> backwards(last.size());
  for (size_t i = 0; i < backwards.size(); ++i) backwards[i] = static_cast<uint32_t>(backwards.size() - 1 - i);
  const std::vector<float> values(100, 1.0f);
  MergedRows merged;
  const RowRun later{{0, 2}, last, values.data(), backwards.data()}, earlier{{0, 2}, first, values.data()};
  ASSERT_TRUE(MergeRows({later, earlier}, 2, 0, UINT64_MAX, &merged).ok());
  EXPECT_EQ(merged.ids, ids);
  ASSERT_EQ(merged.grads.size(), 50u);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(merged.grads[i], values.data() + 2 * (i < 20 ? i : 49 - i)) << i;
}

TEST(MergeRowsTest, RowsOutOfOrderDoNoHarm) {
  // Another process may change what it shares after it was checked.
  std::mt19937_64 random(9);
  std::vector<int64_t> ids(5000);
  for (int64_t& id : ids) id = static_cast<int64_t>(random());
  std::sort(ids.begin(), ids.end(), ByMixedId);
  std::rotate(ids.begin(), ids.begin() + 10, ids.end());
  std::swap(ids.front(), ids.back());
  const std::vector<float> values(ids.size(), 1);
  MergedRows merged;
  ASSERT_TRUE(MergeRows({{{0, 1}, ids, values.data()}, {{1, 1}, ids, values.data()}}, 1, 0, UINT64_MAX, &merged).ok());
  EXPECT_LE(merged.ids.size(), 2 * ids.size());
  for (const int64_t id : merged.ids) EXPECT_NE(std::find(ids.begin(), ids.end(), id), ids.end());
}

TEST(MergeRowsTest, AnIdTwiceInOneNodeIsRefused) {
  const std::vector<int64_t> ids = {7};
  const std::vector<float> values = {1};
  MergedRows merged;
  EXPECT_EQ(MergeRows({{{0, 1}, ids, values.data()}, {{0, 1}, ids, values.data()}}, 1, 0, UINT64_MAX, &merged).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
