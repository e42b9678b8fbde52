// Measures of groups against the mean over all orders that equal scores permit, counted one by one.
#include "transpiler/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "framework/base/philox.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Group = std::vector<Scored>;

Group Ordered(Group group) {
  std::sort(group.begin(), group.end(), [](const Scored& x, const Scored& y) { return PlaceOf(x) < PlaceOf(y); });
  return group;
}

// Mean of `measure` over all permutations that leave scores falling.
double MeanOverOrders(const Group& group, const std::function<double(const std::vector<float>&)>& measure) {
  std::vector<size_t> order(group.size());
  std::iota(order.begin(), order.end(), 0);
  double sum = 0;
  int64_t orders = 0;
  do {
    const auto rises = [&](size_t a, size_t b) { return group[a].score < group[b].score; };
    if (std::adjacent_find(order.begin(), order.end(), rises) != order.end()) continue;
    std::vector<float> labels;
    for (const size_t i : order) labels.push_back(group[i].label);
    sum += measure(labels);
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  return sum / static_cast<double>(orders);
}

size_t Depth(const std::vector<float>& labels, int k) {
  return k == 0 ? labels.size() : std::min(labels.size(), static_cast<size_t>(k));
}

double PlainDcg(const std::vector<float>& labels, int k, bool exponential) {
  double dcg = 0;
  for (size_t i = 0; i < Depth(labels, k); ++i) {
    dcg += (exponential ? std::pow(2, labels[i]) - 1 : labels[i]) / std::log2(static_cast<double>(i) + 2);
  }
  return dcg;
}

// Groups of up to seven examples, with few scores and few labels, so that most have ties.
std::vector<Group> Groups(int labels) {
  std::vector<Group> groups;
  for (uint64_t g = 0; g < 300; ++g) {
    Group group(1 + Philox(7, g, 1000).v[0] % 7);
    for (uint64_t i = 0; i < group.size(); ++i) {
      const auto random = Philox(7, g, i);
      group[i] = {static_cast<float>(random.v[0] % 4), static_cast<float>(random.v[1] % static_cast<uint32_t>(labels))};
    }
    groups.push_back(Ordered(std::move(group)));
  }
  return groups;
}

TEST(PlaceTest, OrdersScoresAndThenLabelsAndKeepsThem) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kSmall = std::numeric_limits<float>::denorm_min();
  const std::vector<float> falling = {kInfinity, 3e38f, 1, 0.5f, kSmall, 0, -kSmall, -0.5f, -1, -3e38f, -kInfinity};
  for (size_t i = 0; i < falling.size(); ++i) {
    for (size_t j = 0; j < falling.size(); ++j) {
      EXPECT_EQ(PlaceOf({falling[i], 7}) < PlaceOf({falling[j], 7}), i < j) << falling[i] << " " << falling[j];
      EXPECT_EQ(PlaceOf({7, falling[i]}) < PlaceOf({7, falling[j]}), i < j) << falling[i] << " " << falling[j];
      if (i < j) {
        EXPECT_LT(PlaceOf({falling[i], falling[j]}), PlaceOf({falling[j], falling[i]}));
      }
      const Scored back = AtPlace(PlaceOf({falling[i], falling[j]}));
      EXPECT_EQ(back.score, falling[i]);
      EXPECT_EQ(back.label, falling[j]);
    }
  }
  EXPECT_EQ(PlaceOf({-0.0f, -0.0f}), PlaceOf({0, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_GT(PlaceOf({nan, 1}), PlaceOf({-kInfinity, -kInfinity}));
  EXPECT_EQ(PlaceOf({-nan, 1}), PlaceOf({nan, 1}));
  EXPECT_TRUE(std::isnan(AtPlace(PlaceOf({nan, 1})).score));
}

TEST(RankingTest, NdcgIsTheMeanOverTheOrdersOfTies) {
  int with_figure = 0;
  for (const Group& group : Groups(/*labels=*/4)) {
    for (const int k : {0, 1, 3, 10}) {
      for (const bool exponential : {false, true}) {
        std::vector<float> best;
        for (const Scored& s : group) best.push_back(s.label);
        std::sort(best.rbegin(), best.rend());
        const double most = PlainDcg(best, k, exponential);
        const double found = Ndcg(group, k, exponential);
        if (most == 0) {
          EXPECT_TRUE(std::isnan(found));
          continue;
        }
        ++with_figure;
        const auto measure = [&](const std::vector<float>& labels) { return PlainDcg(labels, k, exponential) / most; };
        EXPECT_NEAR(found, MeanOverOrders(group, measure), 1e-12);
      }
    }
  }
  EXPECT_GT(with_figure, 1000);
}

TEST(RankingTest, HitsRecallAndRankAreTheMeansOverTheOrdersOfTies) {
  for (const Group& group : Groups(/*labels=*/2)) {
    const int64_t positives = CountPairs(group).positives;
    for (const int k : {0, 1, 2, 4, 10}) {
      if (positives == 0) {
        EXPECT_TRUE(std::isnan(HitRate(group, k)) && std::isnan(RecallAt(group, k)) &&
                    std::isnan(ReciprocalRank(group, k)));
        continue;
      }
      const auto found = [k](const std::vector<float>& labels) {
        return static_cast<double>(
            std::count(labels.begin(), labels.begin() + static_cast<int64_t>(Depth(labels, k)), 1.0f));
      };
      EXPECT_NEAR(HitRate(group, k), MeanOverOrders(group, [&](const auto& l) { return found(l) > 0 ? 1.0 : 0.0; }),
                  1e-12);
      EXPECT_NEAR(RecallAt(group, k),
                  MeanOverOrders(group, [&](const auto& l) { return found(l) / static_cast<double>(positives); }),
                  1e-12);
      const auto reciprocal = [&](const std::vector<float>& labels) {
        const auto rank = std::find(labels.begin(), labels.end(), 1.0f) - labels.begin();
        return static_cast<size_t>(rank) < Depth(labels, k) ? 1.0 / static_cast<double>(rank + 1) : 0.0;
      };
      EXPECT_NEAR(ReciprocalRank(group, k), MeanOverOrders(group, reciprocal), 1e-12);
    }
  }
}

TEST(RankingTest, AucIsTheShareOfOrderedPairsWithHalfOfThoseBeside) {
  for (const Group& group : Groups(/*labels=*/2)) {
    double ordered = 0, pairs = 0;
    for (const Scored& positive : group) {
      for (const Scored& negative : group) {
        if (positive.label != 1 || negative.label != 0) continue;
        ++pairs;
        ordered += positive.score > negative.score ? 1 : positive.score == negative.score ? 0.5 : 0;
      }
    }
    if (pairs == 0) {
      EXPECT_TRUE(std::isnan(CountPairs(group).Auc()));
    } else {
      EXPECT_DOUBLE_EQ(CountPairs(group).Auc(), ordered / pairs);
    }
  }
}

TEST(RankingTest, AWholeWeightCountsAnExampleSoOften) {
  for (const Group& group : Groups(/*labels=*/2)) {
    std::vector<float> weights;
    Group repeated;
    for (size_t i = 0; i < group.size(); ++i) {
      weights.push_back(static_cast<float>(1 + i * i % 4));
      repeated.insert(repeated.end(), 1 + i * i % 4, group[i]);
    }
    const double expected = CountPairs(repeated).Auc(), found = CountPairs(group, weights).Auc();
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found));
    } else {
      EXPECT_EQ(found, expected);
    }
    EXPECT_EQ((ScoredGroup{group, weights}.Weight()), (ScoredGroup{repeated}.Weight()));
    EXPECT_EQ((ScoredGroup{group, weights}.PositiveWeight()), (ScoredGroup{repeated}.PositiveWeight()));
  }
}

TEST(RankingTest, TheAucOfManyWeightsIsThatOfTheirProducts) {
  // All weights of a class are as large as float allows: sums do not overflow.
  Group group;
  std::vector<float> weights;
  for (int i = 0; i < 100'000; ++i) {
    group.push_back({static_cast<float>(-i), static_cast<float>(i % 2)});
    weights.push_back(i % 2 == 0 ? std::numeric_limits<float>::max() : 0.1f);
  }
  // The positive number j has 49,999 - j negatives behind it.
  EXPECT_NEAR(CountPairs(group, weights).Auc(), 0.5 - 0.5 / 50'000, 1e-12);
}

TEST(RankingTest, AScoreThatIsNoNumberIsBelowAllNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Group group = Ordered({{nan, 1}, {-1e30f, 0}, {nan, 0}, {0, 1}});
  EXPECT_EQ(group[0].score, 0);
  EXPECT_EQ(group[1].score, -1e30f);
  // Of the pairs (0, -1e30), (0, nan), (nan, -1e30), (nan, nan): right, right, wrong, half.
  EXPECT_DOUBLE_EQ(CountPairs(group).Auc(), 2.5 / 4);
  EXPECT_DOUBLE_EQ(RecallAt(group, 3), 0.5 * 1 + 0.5 * 0.5);
}

TEST(RankingTest, AGroupOfAMillionEqualScoresTakesNoTime) {
  Group group(1'000'000, Scored{.score = 0.5f});
  for (size_t i = 0; i < group.size(); i += 4) group[i].label = 1;
  group = Ordered(std::move(group));
  EXPECT_DOUBLE_EQ(CountPairs(group).Auc(), 0.5);
  EXPECT_NEAR(HitRate(group, 1), 0.25, 1e-12);
  EXPECT_NEAR(RecallAt(group, 100'000), 0.1, 1e-12);
  // Of 1 / rank of the first success of probability 1/4: log(4) / 3.
  EXPECT_NEAR(ReciprocalRank(group, 0), std::log(4.0) / 3, 1e-5);
}

}  // namespace
}  // namespace weir
