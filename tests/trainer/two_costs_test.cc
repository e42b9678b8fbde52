#include "trainer/verify/two_costs.h"

#include <cmath>
#include <cstdint>

#include "framework/base/philox.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

double Uniform(uint64_t i, uint64_t j) { return 1 + Philox(7, i, j).v[0] / 4294967296.0; }

TEST(TwoCostsTest, FindsTheCostsOfTwoRuns) {
  const TwoCosts costs = SolveTwoCosts(3 * 8 + 5 * 100, 3 * 8 + 5 * 190, 8, 100, 190);
  EXPECT_DOUBLE_EQ(costs.once, 3);
  EXPECT_DOUBLE_EQ(costs.often, 5);
}

TEST(TwoCostsTest, RunsWithoutOneOfThemGiveTheOther) {
  EXPECT_EQ(SolveTwoCosts(12, 12, 4, 0, 0).once, 3);
  EXPECT_EQ(SolveTwoCosts(12, 24, 0, 4, 8).often, 3);
  EXPECT_EQ(SolveTwoCosts(0, 0, 0, 0, 0).often, 0);
}

TEST(TwoCostsTest, RunsThatAreAlikeGiveEqualCosts) {
  const TwoCosts costs = SolveTwoCosts(30, 31, 5, 10, 10.4);
  EXPECT_EQ(costs.once, 2);
  EXPECT_EQ(costs.often, 2);
}

TEST(TwoCostsTest, NoCostIsNegativeWhenTheSecondRunIsSlowerThanTheCountsAllow) {
  int rounded_up = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double t1 = 1e6 * Uniform(i, 0), often1 = 1e5 * Uniform(i, 1);
    const TwoCosts costs = SolveTwoCosts(t1, 9 * t1, 8, often1, 2 * often1);
    ASSERT_GE(costs.once, 0) << t1 << " " << often1;
    ASSERT_FALSE(std::signbit(costs.once)) << t1 << " " << often1;
    ASSERT_GT(costs.often, 0);
    rounded_up += t1 / often1 * often1 > t1;
  }
  EXPECT_GT(rounded_up, 0) << "no case had the rounding that this test is about";
}

TEST(TwoCostsTest, ASecondRunThatIsFasterCostsOnceAlone) {
  const TwoCosts costs = SolveTwoCosts(30, 20, 5, 10, 20);
  EXPECT_EQ(costs.once, 6);
  EXPECT_EQ(costs.often, 0);
}

}  // namespace
}  // namespace weir
