// Against whole numbers of a thousand bits, added term by term.
#include "framework/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

using Floats = std::vector<float>;

// A whole number times 2^-400, negative ones in two's complement.
class Whole {
 public:
  // Exact for doubles from 2^-400 on.
  void Add(double value) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    const bool negative = fraction < 0;
    uint64_t digits = static_cast<uint64_t>(std::ldexp(std::fabs(fraction), 53));
    int at = exponent - 53 + 400;
    Whole term;
    for (int i = 0; i < 53; ++i, ++at, digits >>= 1) {
      if ((digits & 1) != 0) {
        EXPECT_GE(at, 0);
        term.words_[at / 32] |= uint32_t{1} << at % 32;
      }
    }
    AddWords(negative ? term.Negated() : term);
  }
  void AddWords(const Whole& other) {
    uint64_t carry = 0;
    for (int i = 0; i < kWords; ++i) {
      carry += uint64_t{words_[i]} + other.words_[i];
      words_[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  Whole Negated() const {
    Whole result;
    uint64_t carry = 1;
    for (int i = 0; i < kWords; ++i) {
      carry += static_cast<uint32_t>(~words_[i]);
      result.words_[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    return result;
  }
  // |this - value|
  Whole Distance(double value) const {
    Whole difference = *this;
    difference.Add(-value);
    return difference.words_[kWords - 1] >> 31 != 0 ? difference.Negated() : difference;
  }
  bool operator<(const Whole& other) const {
    for (int i = kWords - 1; i >= 0; --i) {
      if (words_[i] != other.words_[i]) return words_[i] < other.words_[i];
    }
    return false;
  }
  bool operator==(const Whole&) const = default;

 private:
  static constexpr int kWords = 32;
  uint32_t words_[kWords] = {};
};

// No double is nearer than `got`, and of two equally near it is the even one.
void ExpectNearest(const Whole& exact, double got) {
  const double up = std::nextafter(got, std::numeric_limits<double>::infinity());
  const double down = std::nextafter(got, -std::numeric_limits<double>::infinity());
  for (double other : {up, down}) {
    if (got == 0) {
      EXPECT_EQ(exact, Whole());
      return;
    }
    EXPECT_FALSE(exact.Distance(other) < exact.Distance(got)) << got << " " << other;
    if (exact.Distance(other) == exact.Distance(got)) {
      EXPECT_EQ(std::bit_cast<uint64_t>(got) & 1, 0u) << got;
    }
  }
}

std::string BytesOfSquares(const Floats& values) {
  ExactSum sum;
  sum.AddSquares(values);
  return sum.ToBytes();
}

// Every exponent, subnormals and zeros, both signs.
Floats AnyFloats(std::mt19937& random, int n) {
  Floats values;
  while (static_cast<int>(values.size()) < n) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
    if (random() % 50 == 0) values.push_back(0);
    if (random() % 50 == 0) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffff)));
  }
  values.resize(static_cast<size_t>(n));
  return values;
}

Floats Gradients(std::mt19937& random, int n) {
  std::normal_distribution<float> normal(0, 1e-3f);
  Floats values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

TEST(ExactSumTest, SquaresOfSmallNumbersAreWhatTheyAre) {
  ExactSum sum;
  EXPECT_EQ(sum.Rounded(), 0);
  sum.AddSquares(Floats{3, -4, 0.5f});
  EXPECT_EQ(sum.Rounded(), 25.25);
  sum.AddProduct(2, -10);
  EXPECT_EQ(sum.Rounded(), 5.25);
  sum.AddProduct(-3, 2);
  EXPECT_EQ(sum.Rounded(), -0.75);
}

TEST(ExactSumTest, NothingSmallIsLostBesideTheLarge) {
  ExactSum sum;
  const float large = std::numeric_limits<float>::max(), tiny = std::numeric_limits<float>::denorm_min();
  sum.AddProduct(large, large);
  sum.AddProduct(tiny, tiny);
  sum.AddProduct(large, -large);
  EXPECT_EQ(sum.Rounded(), std::ldexp(1.0, -298));
}

TEST(ExactSumTest, SquaresEqualAPlainReferenceAndAreRoundedOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int n = 1 + static_cast<int>(random() % 2000);
    const Floats values = round % 2 == 0 ? AnyFloats(random, n) : Gradients(random, n);
    Whole exact;
    for (float v : values) exact.Add(static_cast<double>(v) * v);
    ExactSum sum;
    sum.AddSquares(values);
    ExpectNearest(exact, sum.Rounded());
    // The fast path gives the sum of adding one by one.
    ExactSum single;
    for (float v : values) single.AddProduct(v, v);
    EXPECT_EQ(single.ToBytes(), sum.ToBytes());
  }
}

TEST(ExactSumTest, ProductsOfBothSignsEqualAPlainReference) {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    const Floats a = AnyFloats(random, 300), b = AnyFloats(random, 300);
    Whole exact;
    ExactSum sum;
    for (size_t i = 0; i < a.size(); ++i) {
      exact.Add(static_cast<double>(a[i]) * b[i]);
      sum.AddProduct(a[i], b[i]);
      if (round % 2 == 1 && i % 3 == 0) {  // nearly all cancels
        exact.Add(-static_cast<double>(a[i]) * b[i]);
        sum.AddProduct(-a[i], b[i]);
      }
    }
    ExpectNearest(exact, sum.Rounded());
  }
}

TEST(ExactSumTest, ATieGoesToTheEvenDouble) {
  // 2^52 units and half a unit; then three halves.
  ExactSum sum;
  sum.AddProduct(std::ldexp(1.0f, 26), std::ldexp(1.0f, 27));
  sum.AddProduct(1, 1);
  EXPECT_EQ(sum.Rounded(), std::ldexp(1.0, 53));
  sum.AddProduct(1, 2);
  EXPECT_EQ(sum.Rounded(), std::ldexp(1.0, 53) + 4);
  sum.AddProduct(std::ldexp(1.0f, -149), std::ldexp(1.0f, -149));
  EXPECT_EQ(sum.Rounded(), std::ldexp(1.0, 53) + 4);
}

TEST(ExactSumTest, AnyOrderAndAnySplitGiveTheSameBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    Floats values = round % 2 == 0 ? AnyFloats(random, 5000) : Gradients(random, 5000);
    const std::string whole = BytesOfSquares(values);
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(BytesOfSquares(values), whole);
    // Pieces of any length, merged in any order, over the wire and back.
    std::vector<std::string> pieces;
    for (size_t at = 0; at < values.size();) {
      const size_t n = std::min<size_t>(values.size() - at, random() % 900);
      pieces.push_back(BytesOfSquares(
          Floats(values.begin() + static_cast<ptrdiff_t>(at), values.begin() + static_cast<ptrdiff_t>(at + n))));
      at += n;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    ExactSum merged;
    for (const std::string& piece : pieces) {
      const absl::StatusOr<ExactSum> part = ExactSum::FromBytes(piece);
      ASSERT_TRUE(part.ok()) << part.status();
      merged.Add(*part);
    }
    EXPECT_EQ(merged.ToBytes(), whole);
  }
}

TEST(ExactSumTest, EqualSumsOfDifferentTermsHaveEqualBytes) {
  ExactSum one, other;
  one.AddProduct(3, 3);
  for (int i = 0; i < 10; ++i) other.AddProduct(1, 1);
  other.AddProduct(1, -1);
  EXPECT_EQ(one.ToBytes(), other.ToBytes());
  one.AddProduct(3, -3);
  EXPECT_EQ(one.ToBytes(), ExactSum().ToBytes());
}

TEST(ExactSumTest, ManyTermsByDoublingStayExact) {
  // (1 - 2^-24)^2 * 2^50, and the smallest square as often.
  ExactSum sum;
  sum.AddProduct(1 - std::ldexp(1.0f, -24), 1 - std::ldexp(1.0f, -24));
  sum.AddProduct(std::ldexp(1.0f, -149), std::ldexp(1.0f, -149));
  for (int i = 0; i < 50; ++i) sum.Add(ExactSum(sum));
  Whole exact;
  exact.Add(std::ldexp((1 - std::ldexp(1.0, -24)) * (1 - std::ldexp(1.0, -24)), 50));
  exact.Add(std::ldexp(1.0, -248));
  ExpectNearest(exact, sum.Rounded());
  EXPECT_EQ(ExactSum::FromBytes(sum.ToBytes())->ToBytes(), sum.ToBytes());
  // The largest square, 2^50 times.
  ExactSum largest;
  largest.AddProduct(std::numeric_limits<float>::max(), std::numeric_limits<float>::max());
  for (int i = 0; i < 50; ++i) largest.Add(ExactSum(largest));
  const double max = std::numeric_limits<float>::max();
  EXPECT_EQ(largest.Rounded(), std::ldexp(max * max, 50));
}

TEST(ExactSumTest, ALongRunOfLargeValuesOverflowsNoPlace) {
  // Values of equal exponent all add to the same limbs, the worst case for their size.
  const Floats values(300000, std::bit_cast<float>(0x3fffffffu));
  ExactSum sum;
  sum.AddSquares(values);
  const double mantissa = 16777215;
  EXPECT_EQ(sum.Rounded(), mantissa * mantissa * 300000 / std::ldexp(1.0, 46));
}

TEST(ExactSumTest, NonFiniteTermsShowInTheResultWhereverTheyStand) {
  const float inf = std::numeric_limits<float>::infinity();
  for (size_t n : {size_t{3}, size_t{1000}, size_t{140000}}) {
    for (size_t at : {size_t{0}, n / 2, n - 1}) {
      Floats values(n, 2);
      values[at] = -inf;
      ExactSum sum;
      sum.AddSquares(values);
      EXPECT_EQ(sum.Rounded(), static_cast<double>(inf));
      values[at] = std::numeric_limits<float>::quiet_NaN();
      ExactSum other;
      other.AddSquares(values);
      EXPECT_TRUE(std::isnan(other.Rounded()));
      sum.Add(other);
      EXPECT_TRUE(std::isnan(ExactSum::FromBytes(sum.ToBytes())->Rounded()));
    }
  }
  ExactSum both;
  both.AddProduct(inf, 1);
  both.AddProduct(inf, -1);
  EXPECT_TRUE(std::isnan(both.Rounded()));
}

TEST(ExactSumTest, BytesThatAreNoSumAreRefused) {
  EXPECT_FALSE(ExactSum::FromBytes("").ok());
  EXPECT_FALSE(ExactSum::FromBytes(std::string(167, '\0')).ok());
  EXPECT_TRUE(ExactSum::FromBytes(std::string(168, '\0')).ok());
  std::string bytes(168, '\0');
  bytes[4] = 1;  // a limb above 2^32
  EXPECT_FALSE(ExactSum::FromBytes(bytes).ok());
  bytes = std::string(168, '\0');
  bytes[167] = 1;  // an unknown flag
  EXPECT_FALSE(ExactSum::FromBytes(bytes).ok());
  bytes = std::string(168, '\0');
  bytes[159] = '\x40';  // a highest limb that no 2^50 terms reach
  EXPECT_FALSE(ExactSum::FromBytes(bytes).ok());
}

}  // namespace
}  // namespace weir
