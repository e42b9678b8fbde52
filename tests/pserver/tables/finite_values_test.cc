#include "pserver/tables/finite_values.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(FiniteValuesTest, TheFirstThatIsNotFiniteIsFoundWhereverItIs) {
  using Limits = std::numeric_limits<float>;
  for (int64_t n = 0; n <= 200; n = n < 140 ? n + 1 : n + 30) {
    std::vector<float> values(static_cast<size_t>(n) + 1);
    for (int64_t i = 0; i < n; ++i)
      values[static_cast<size_t>(i)] = i % 3 == 0   ? Limits::max()
                                       : i % 3 == 1 ? Limits::lowest()
                                                    : Limits::denorm_min();
    // What is behind them does not count.
    values.back() = Limits::infinity();
    EXPECT_EQ(FirstNotFinite(values.data(), n), n);
    AllFinite all;
    all.Add(values.data(), n);
    EXPECT_TRUE(all.value());
    for (int64_t at = 0; at < n; ++at) {
      for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN()}) {
        std::vector<float> wrong = values;
        wrong[static_cast<size_t>(at)] = bad;
        wrong[static_cast<size_t>(n - 1)] = bad;
        EXPECT_EQ(FirstNotFinite(wrong.data(), n), at);
        AllFinite finite;
        finite.Add(wrong.data(), at + 1);
        finite.Add(values.data(), n);
        EXPECT_FALSE(finite.value());
      }
    }
  }
}

}  // namespace
}  // namespace weir
