#include "tools/reporting/column.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/reporting/rounding.h"

namespace weir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Numbers of every size and sign, some of them equal.
std::vector<float> Numbers(size_t n) {
  std::mt19937_64 random(5);
  std::vector<float> numbers;
  while (numbers.size() < n) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(x)) numbers.push_back(random() % 3 == 0 ? std::round(std::fmod(x, 5.0f)) : x);
  }
  return numbers;
}

v1::ColumnFigures Figures(const std::vector<float>& numbers, bool keep) {
  ColumnHistogram histogram;
  histogram.Add(numbers);
  return FiguresOf(ColumnSums::Of(numbers), histogram, keep ? absl::MakeConstSpan(numbers) : absl::Span<const float>());
}

// The number of rank ceil(q n).
double Quantile(std::vector<float> numbers, double q) {
  std::sort(numbers.begin(), numbers.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(numbers.size())));
  return static_cast<double>(numbers[std::max<size_t>(rank, 1) - 1]);
}

TEST(ColumnTest, FiguresOfAFewNumbersAreThoseByHand) {
  const v1::ColumnFigures of = Figures({3, kNan, -1, 4, kInfinity, -kInfinity, 2}, /*keep=*/true);
  EXPECT_EQ(of.count(), 4);
  EXPECT_EQ(of.not_finite(), 3);
  EXPECT_EQ(of.mean(), 2);
  EXPECT_EQ(of.deviation(), std::sqrt((1 + 9 + 4 + 0) / 4.0));
  EXPECT_EQ(of.min(), -1);
  EXPECT_EQ(of.p1(), -1);
  EXPECT_EQ(of.p50(), 2);
  EXPECT_EQ(of.p99(), 4);
  EXPECT_EQ(of.max(), 4);
  EXPECT_EQ(of.quantile_error(), 0);
}

TEST(ColumnTest, AColumnWithoutFiniteNumbersHasNoFigures) {
  EXPECT_EQ(Figures({}, true).count(), 0);
  const v1::ColumnFigures of = Figures({kNan, kInfinity}, true);
  EXPECT_EQ(of.not_finite(), 2);
  EXPECT_FALSE(of.has_mean() || of.has_p50());
}

TEST(ColumnTest, QuantilesOfKeptNumbersAreExact) {
  for (const size_t n : {1, 2, 3, 99, 100, 101, 20000}) {
    const std::vector<float> numbers = Numbers(n);
    const v1::ColumnFigures of = Figures(numbers, /*keep=*/true);
    EXPECT_EQ(of.p1(), Quantile(numbers, .01)) << n;
    EXPECT_EQ(of.p50(), Quantile(numbers, .5)) << n;
    EXPECT_EQ(of.p99(), Quantile(numbers, .99)) << n;
  }
}

TEST(ColumnTest, QuantilesOfAHistogramAreWithinTheirBound) {
  const std::vector<float> numbers = Numbers(20000);
  const v1::ColumnFigures of = Figures(numbers, /*keep=*/false);
  EXPECT_EQ(of.quantile_error(), kClassError);
  EXPECT_GT(kClassError, 0);
  for (const auto& [found, q] : {std::pair{of.p1(), .01}, {of.p50(), .5}, {of.p99(), .99}}) {
    EXPECT_NEAR(found, Quantile(numbers, q), kClassError * std::fabs(Quantile(numbers, q))) << q;
  }
}

TEST(ColumnTest, WholeNumbersOfAHistogramAreExact) {
  for (int n = 0; n <= 1024; ++n) {
    const auto x = static_cast<float>(n);
    EXPECT_EQ(ColumnHistogram::NearEnd(ColumnHistogram::ClassOf(x)), x);
    EXPECT_EQ(ColumnHistogram::NearEnd(ColumnHistogram::ClassOf(-x)), -x);
  }
}

TEST(ColumnTest, EachNumberIsAMemberOfItsClass) {
  std::vector<float> numbers = Numbers(1000);
  numbers.insert(numbers.end(), {0.0f, -0.0f, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                                 std::numeric_limits<float>::denorm_min()});
  for (const float x : numbers) {
    const float member = ColumnHistogram::Member(ColumnHistogram::ClassOf(x), ColumnHistogram::DistanceOf(x));
    EXPECT_EQ(std::bit_cast<uint32_t>(member), std::bit_cast<uint32_t>(x)) << x;
  }
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i - 1] == numbers[i]) continue;
    EXPECT_LE(ColumnHistogram::ClassOf(numbers[i - 1]), ColumnHistogram::ClassOf(numbers[i]));
  }
}

TEST(ColumnTest, PartsAddUpToTheWhole) {
  const std::vector<float> numbers = {1, 5, kNan, 2, 8, 4, 4, 0, -3, 7, 7, 1};
  const absl::Span<const float> all = numbers;
  ColumnSums sums;
  for (size_t begin = 0; begin < numbers.size(); begin += 3) sums.Add(ColumnSums::Of(all.subspan(begin, 3)));
  const ColumnSums whole = ColumnSums::Of(all);
  EXPECT_EQ(sums.count, 11);
  EXPECT_EQ(sums.not_finite, 1);
  EXPECT_DOUBLE_EQ(sums.mean, whole.mean);
  EXPECT_NEAR(sums.squares, whole.squares, 1e-12);
  EXPECT_EQ(sums.min, -3);
  EXPECT_EQ(sums.max, 8);
}

TEST(ColumnTest, VectorsGiveTheBitsOfThePlainForm) {
  if (!HasFloat16Vectors()) GTEST_SKIP() << "this processor has no AVX2";
  std::mt19937 random(3);
  std::normal_distribution<float> normal(1, 3);
  for (const size_t width : {1, 7, 8, 9, 16, 40}) {
    std::vector<float> values(width * 37);
    for (float& x : values) x = normal(random);
    for (const bool finite : {true, false}) {
      if (!finite) values[width] = kNan;
      const ColumnSums plain = ColumnSums::Of(values, false), vectors = ColumnSums::Of(values, true);
      EXPECT_EQ(plain.mean, vectors.mean);
      EXPECT_EQ(plain.squares, vectors.squares);
      EXPECT_EQ(plain.min, vectors.min);
      EXPECT_EQ(plain.max, vectors.max);
      std::vector<double> plain_squares(width, 0.5), squares(width, 0.5);
      std::vector<float> plain_norms(37), norms(37);
      AddSquares(values, absl::MakeSpan(plain_squares), absl::MakeSpan(plain_norms), false);
      AddSquares(values, absl::MakeSpan(squares), absl::MakeSpan(norms), true);
      EXPECT_EQ(plain_squares, squares) << width;
      for (size_t r = 0; r < norms.size(); ++r) {
        EXPECT_EQ(std::isfinite(norms[r]), finite || r != 1);
        EXPECT_EQ(std::isfinite(plain_norms[r]), finite || r != 1);
        EXPECT_TRUE(plain_norms[r] == norms[r] || r == 1) << width;
      }
    }
  }
}

TEST(ColumnTest, SquaresLeaveOutRowsThatAreNotFinite) {
  const std::vector<float> values = {3, 4, kInfinity, 1, 0, -2, 3e38f, 3e38f};
  std::vector<double> squares(2);
  std::vector<float> norms(4);
  AddSquares(absl::MakeConstSpan(values).first(6), absl::MakeSpan(squares), absl::MakeSpan(norms).first(3));
  EXPECT_THAT(squares, ::testing::ElementsAre(9, 20));
  EXPECT_EQ(norms[0], 5);
  EXPECT_FALSE(std::isfinite(norms[1]));
  EXPECT_EQ(norms[2], 2);
  AddSquares(absl::MakeConstSpan(values).last(2), absl::MakeSpan(squares), absl::MakeSpan(norms).last(1));
  EXPECT_EQ(norms[3], std::numeric_limits<float>::max());
}

TEST(ColumnTest, TheGreatestAddUp) {
  std::vector<float> numbers = Numbers(3000);
  for (float& x : numbers) x = std::fmod(x, 1000.0f);
  numbers.insert(numbers.end(), 500, 700.0f);
  ColumnHistogram histogram;
  histogram.Add(numbers);
  std::vector<float> sorted = numbers;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0;
  for (size_t n = 0; n <= sorted.size(); ++n) {
    if (n % 97 == 0 || n == sorted.size()) {
      EXPECT_NEAR(SumOfGreatest(static_cast<int64_t>(n), histogram, numbers), sum, 1e-6) << n;
    }
    if (n < sorted.size()) sum += static_cast<double>(sorted[n]);
  }
  const double few = SumOfGreatest(10, histogram, numbers);
  EXPECT_NEAR(SumOfGreatest(10, histogram, {}), few, kClassError * few);
}

TEST(RoundingTest, ErrorsAreThoseOfEachValue) {
  std::vector<float> values = Numbers(4003);
  values.insert(values.end(), {kNan, kInfinity, 0.0f, -0.0f, 65504.0f, 65505.0f, -70000.0f, 3.4e38f, 6e-8f, 1e-30f});
  const SixteenBitErrors errors = RoundingErrorsOf(values);
  for (const auto& [found, dtype] :
       {std::pair{errors.float16, v1::FLOAT16}, std::pair{errors.bfloat16, v1::BFLOAT16}}) {
    const RoundingErrors one_by_one = RoundingErrorsByValue(dtype, values);
    EXPECT_EQ(found.values, one_by_one.values);
    EXPECT_EQ(found.max, one_by_one.max);
    EXPECT_EQ(found.beyond, one_by_one.beyond);
    EXPECT_NEAR(found.sum, one_by_one.sum, 1e-9 * one_by_one.sum);
  }
  EXPECT_GT(errors.float16.beyond, 100);
}

TEST(RoundingTest, ErrorsByHand) {
  // 1 + 2^-11 is between 1 and 1 + 2^-10 and goes to 1, the even one; 131008 becomes the greatest.
  const std::vector<float> values = {1, 1.00048828125f, 0, 131008, -2};
  const RoundingErrors of = RoundingErrorsOf(values).float16;
  EXPECT_EQ(of.values, 4);
  EXPECT_EQ(of.beyond, 1);
  EXPECT_EQ(of.max, 0.5f);
  EXPECT_DOUBLE_EQ(of.sum, static_cast<double>(0.00048828125f / 1.00048828125f) + 0.5);
}

}  // namespace
}  // namespace weir
