#include "trainer/statistics/moments.h"

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

Moments Of(std::initializer_list<double> values) {
  Moments moments;
  for (const double value : values) moments.Add(value);
  return moments;
}

TEST(MomentsTest, MeanAndDistancesAreThoseOfTheValues) {
  const Moments moments = Of({1, 2, 3, 6});
  EXPECT_EQ(moments.count, 4);
  EXPECT_DOUBLE_EQ(moments.mean, 3);
  EXPECT_DOUBLE_EQ(moments.m2, 4 + 1 + 0 + 9);
  EXPECT_DOUBLE_EQ(moments.Deviation() * moments.Deviation(), 14 / 4.0);
}

TEST(MomentsTest, TwoPartsAddUpToTheWhole) {
  Moments moments = Of({1, 2});
  moments.Add(Of({3, 6}));
  EXPECT_EQ(moments.count, 4);
  EXPECT_DOUBLE_EQ(moments.mean, 3);
  EXPECT_DOUBLE_EQ(moments.m2, 14);
}

TEST(MomentsTest, NoValuesAddNothing) {
  Moments moments = Of({1, 5});
  moments.Add(Moments());
  EXPECT_EQ(moments.count, 2);
  EXPECT_EQ(moments.mean, 3);
  Moments none;
  none.Add(Of({1, 5}));
  EXPECT_EQ(none.mean, 3);
  EXPECT_EQ(none.m2, 8);
}

TEST(MomentsTest, AConstantColumnHasTheDeviationOne) {
  EXPECT_EQ(Of({7, 7, 7}).Deviation(), 1);
  EXPECT_EQ(Moments().Deviation(), 1);
}

TEST(MomentsTest, MomentsThatNoColumnOfFloatsHasAreNotPlausible) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Moments().Plausible());
  EXPECT_TRUE(Of({-kLargest, kLargest}).Plausible());
  EXPECT_FALSE((Moments{.count = -1}).Plausible());
  EXPECT_FALSE((Moments{.count = (int64_t{1} << 48) + 1}).Plausible());
  EXPECT_FALSE((Moments{.count = 1, .mean = 2 * kLargest}).Plausible());
  EXPECT_FALSE((Moments{.count = 1, .mean = kNan}).Plausible());
  EXPECT_FALSE((Moments{.count = 1, .m2 = -1}).Plausible());
  EXPECT_FALSE((Moments{.count = 1, .m2 = kNan}).Plausible());
}

}  // namespace
}  // namespace weir
