#include "framework/runtime/initial_value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

v1::Initializer Uniform(double min, double max) {
  v1::Initializer init;
  init.mutable_uniform()->set_min(min);
  init.mutable_uniform()->set_max(max);
  return init;
}
v1::Initializer Gaussian(double mean, double stddev) {
  v1::Initializer init;
  init.mutable_gaussian()->set_mean(mean);
  init.mutable_gaussian()->set_stddev(stddev);
  return init;
}

std::vector<float> Elements(const v1::Initializer& init, uint64_t seed, std::string_view name, int64_t begin,
                            int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  const absl::Status status = InitialElements(init, seed, name, {1000, 1000}, begin, absl::MakeSpan(out));
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

struct Moments {
  double mean = 0, variance = 0, min = 1e30, max = -1e30;
};
Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (float v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.min = std::min<double>(m.min, v);
    m.max = std::max<double>(m.max, v);
  }
  for (float v : values) m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

TEST(InitialElementsTest, PiecesHaveTheBitsOfTheWhole) {
  for (const v1::Initializer& init : {Uniform(-2, 3), Gaussian(1, 2)}) {
    const std::vector<float> whole = Elements(init, 7, "w", 0, 103);
    for (int64_t begin : {0, 1, 2, 3, 5, 64, 101}) {
      const int64_t n = std::min<int64_t>(37, 103 - begin);
      EXPECT_EQ(Elements(init, 7, "w", begin, n), std::vector<float>(whole.begin() + begin, whole.begin() + begin + n));
    }
  }
}

TEST(InitialElementsTest, SeedAndNameMatter) {
  const std::vector<float> base = Elements(Uniform(0, 1), 7, "w", 0, 8);
  EXPECT_NE(base, Elements(Uniform(0, 1), 8, "w", 0, 8));
  EXPECT_NE(base, Elements(Uniform(0, 1), 7, "v", 0, 8));
}

TEST(InitialElementsTest, UniformFillsItsInterval) {
  const Moments m = MomentsOf(Elements(Uniform(-2, 4), 1, "w", 0, 200000));
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.variance, 36.0 / 12, 0.03);
  EXPECT_GE(m.min, -2);
  EXPECT_LT(m.max, 4);
}

TEST(InitialElementsTest, UniformNeverReachesItsMaximum) {
  // max is two floats above min, so plain rounding would reach it in a quarter of the cases.
  const float max = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  for (float v : Elements(Uniform(1, max), 1, "w", 0, 1000)) ASSERT_LT(v, max);
}

TEST(InitialElementsTest, GaussianHasTheNormalDistribution) {
  const std::vector<float> values = Elements(Gaussian(1, 2), 1, "w", 0, 200000);
  const Moments m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.variance, 4, 0.05);
  for (double x : {-3.0, -2.0, -0.5, 0.0, 1.0, 2.5}) {
    const auto below = std::count_if(values.begin(), values.end(), [&](float v) { return (v - 1) / 2 < x; });
    EXPECT_NEAR(static_cast<double>(below) / 200000, 0.5 * std::erfc(-x / std::sqrt(2.0)), 0.004) << x;
  }
}

TEST(InitialElementsTest, GaussianHasTheQuantilesOfItsBits) {
  // Sorted, n random values follow the quantiles: over 10^6 values, far tails included, the largest deviation stays
  // within chance (Kolmogorov: 1.63 / sqrt(n) in 99 of 100 cases).
  std::vector<float> values = Elements(Gaussian(0, 1), 3, "w", 0, 1000000);
  std::sort(values.begin(), values.end());
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = 0.5 * std::erfc(-values[i] / std::sqrt(2.0));
    worst = std::max(worst, std::abs(p - (static_cast<double>(i) + 0.5) / 1e6));
  }
  EXPECT_LT(worst, 1.63e-3);
  EXPECT_GT(values.back(), 4);
  EXPECT_LT(values.front(), -4);
}

TEST(InitialElementsTest, XavierTakesItsFansFromAMatrix) {
  v1::Initializer init;
  init.mutable_xavier();
  std::vector<float> out(10000);
  ASSERT_TRUE(InitialElements(init, 1, "w", {100, 200}, 0, absl::MakeSpan(out)).ok());
  const double limit = std::sqrt(6.0 / 300);
  EXPECT_LE(MomentsOf(out).max, limit);
  EXPECT_GT(MomentsOf(out).max, 0.99 * limit);
  init.mutable_xavier()->set_uniform(false);
  ASSERT_TRUE(InitialElements(init, 1, "w", {100, 200}, 0, absl::MakeSpan(out)).ok());
  EXPECT_NEAR(MomentsOf(out).variance, 2.0 / 300, 3e-4);
}

TEST(InitialElementsTest, XavierOfAVectorNeedsFans) {
  v1::Initializer init;
  init.mutable_xavier();
  std::vector<float> out(4);
  EXPECT_THAT(std::string(InitialElements(init, 1, "b", {4}, 0, absl::MakeSpan(out)).message()),
              HasSubstr("needs fan_in and fan_out for a variable of dims [4]"));
  init.mutable_xavier()->set_fan_in(4);
  init.mutable_xavier()->set_fan_out(4);
  EXPECT_TRUE(InitialElements(init, 1, "b", {4}, 0, absl::MakeSpan(out)).ok());
}

TEST(InitialElementsTest, AnEmptyIntervalIsRefused) {
  std::vector<float> out(4);
  EXPECT_THAT(std::string(InitialElements(Uniform(2, 1), 1, "b", {4}, 0, absl::MakeSpan(out)).message()),
              HasSubstr("min 2 must be at most max 1"));
}

TEST(InitialElementsTest, NoKindIsZero) { EXPECT_THAT(Elements(v1::Initializer(), 1, "w", 0, 5), Each(0)); }

TEST(RowInitializerTest, ARowIsAFunctionOfTableSeedAndId) {
  const RowInitializer rows(Uniform(-1, 1), 5, "t"), again(Uniform(-1, 1), 5, "t"), other(Uniform(-1, 1), 5, "u");
  for (int64_t id :
       {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    std::vector<float> a(9), b(9), c(9), narrow(4);
    rows.Fill(id, absl::MakeSpan(a));
    again.Fill(id, absl::MakeSpan(b));
    other.Fill(id, absl::MakeSpan(c));
    rows.Fill(id, absl::MakeSpan(narrow));
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    EXPECT_TRUE(std::equal(narrow.begin(), narrow.end(), a.begin()));
  }
  std::vector<float> x(4), y(4);
  rows.Fill(1, absl::MakeSpan(x));
  rows.Fill(2, absl::MakeSpan(y));
  EXPECT_NE(x, y);
}

// The definition, one value at a time.
float PlainUniform(uint64_t key, uint64_t high, int64_t element, float min, float max) {
  const PhiloxBlock block = Philox(key, static_cast<uint64_t>(element / 4), high);
  const float width = static_cast<float>(static_cast<double>(max) - min);
  const float v = min + UniformFloat(block.v[element % 4]) * width;
  return v < min + width || width == 0 ? v : std::nextafter(min + width, min);
}

// Intervals: a common one; one whose maximum is often reached before it is moved down; a single value; signed zeros;
// very wide ones.
const std::pair<float, float> kIntervals[] = {{-1.0f, 1.0f},  {1.0f, 1.0000002f}, {3.0f, 3.0f},
                                              {-0.0f, -0.0f}, {-0.0f, 1e-40f},    {-1e38f, 2e38f}};

TEST(RowInitializerTest, UniformRowsHaveTheBitsOfTheDefinition) {
  const uint64_t key = StableHash("t", 1, 5);
  for (const auto& [min, max] : kIntervals) {
    const RowInitializer rows(Uniform(min, max), 5, "t");
    for (int64_t id : {int64_t{0}, int64_t{7}, int64_t{-1}, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
      for (int begin = 0; begin < 8; ++begin) {
        for (size_t width = 0; width <= 40; ++width) {
          // FillColumns must not write behind the row.
          std::vector<float> row(width + 16, 123.0f);
          rows.FillColumns(id, begin, absl::MakeSpan(row).first(width));
          for (size_t i = 0; i < row.size(); ++i) {
            const float expected =
                i < width ? PlainUniform(key, static_cast<uint64_t>(id), begin + static_cast<int64_t>(i), min, max)
                          : 123.0f;
            ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), std::bit_cast<uint32_t>(expected))
                << "element " << i << " of " << width << " from " << begin << ", id " << id << ", from " << min
                << " to " << max;
          }
        }
      }
    }
  }
}

TEST(InitialElementsTest, UniformElementsHaveTheBitsOfTheDefinition) {
  const uint64_t key = StableHash("w", 1, 9);
  for (const auto& [min, max] : kIntervals) {
    // Includes begins where the lower half of the block number, or the whole of it, is about to overflow.
    for (int64_t begin :
         {int64_t{0}, int64_t{3}, int64_t{1001}, (int64_t{1} << 34) - 9, std::numeric_limits<int64_t>::max() - 60}) {
      const std::vector<float> values = Elements(Uniform(min, max), 9, "w", begin, 53);
      for (size_t i = 0; i < values.size(); ++i) {
        const float expected = PlainUniform(key, 0, begin + static_cast<int64_t>(i), min, max);
        ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected)) << i << " from " << begin;
      }
    }
  }
}

TEST(RowInitializerTest, UniformColumnsOfManyInitializersHaveTheBitsOfTheDefinition) {
  const uint64_t key = StableHash("t", 1, 5);
  RowInitializer rows(Uniform(-1, 1), 5, "t");
  rows.SetColumns(0, 5, Uniform(-1, 1));
  rows.SetColumns(5, 1, Uniform(0, 2));
  rows.SetColumns(6, 27, Uniform(-2, 0));
  std::vector<float> row(33);
  rows.Fill(-3, absl::MakeSpan(row));
  for (size_t i = 0; i < row.size(); ++i) {
    const float min = i < 5 ? -1.0f : i == 5 ? 0.0f : -2.0f;
    EXPECT_EQ(row[i], PlainUniform(key, static_cast<uint64_t>(int64_t{-3}), static_cast<int64_t>(i), min, min + 2))
        << i;
  }
}

// Checkpoints and digests depend on these numbers: they must never change.
TEST(InitialElementsTest, ValuesStayWhatTheyAre) {
  const std::vector<float> uniform = Elements(Uniform(0, 1), 1, "w", 0, 2);
  const std::vector<float> gaussian = Elements(Gaussian(0, 1), 1, "w", 0, 2);
  std::vector<float> row(2);
  RowInitializer(Uniform(0, 1), 1, "w").Fill(42, absl::MakeSpan(row));
  const auto bits = [](float v) { return static_cast<int64_t>(std::ldexp(v, 24)); };
  EXPECT_EQ(bits(uniform[0]), 4890293);
  EXPECT_EQ(bits(uniform[1]), 13819458);
  EXPECT_EQ(bits(gaussian[0]), -9211597);
  EXPECT_EQ(bits(gaussian[1]), 15595648);
  EXPECT_EQ(bits(row[0]), 10331950);
  EXPECT_EQ(bits(row[1]), 13189193);
}

}  // namespace
}  // namespace weir
