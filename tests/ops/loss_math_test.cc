#include "ops/loss_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/row_loss_math.h"

namespace weir {
namespace {

// The bits of the definition, or both are NaN.
bool SameBits(float x) {
  const float got = Log1pExpMinusAbs(x), expected = Log1p(Exp(-Abs(x)));
  return std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected) || (std::isnan(got) && std::isnan(expected));
}

TEST(LossMathTest, Log1pExpMinusAbsHasTheBitsOfItsDefinition) {
  // A prime apart, through all floats.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 1009) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_TRUE(SameBits(x)) << x << ", bits " << bits;
  }
}

TEST(LossMathTest, Log1pExpMinusAbsHasTheBitsOfItsDefinitionWhereItsFormChanges) {
  // 0 and the smallest numbers; where 1 + e^x passes sqrt(2); where e^x is lost beside 1; the last e^x, and infinity.
  for (float around : {0.0f, 1e-38f, 0.88137358f, 0.34657359f, 16.635532f, 17.328680f, 87.33654f, 88.722839f,
                       std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const uint32_t at = std::bit_cast<uint32_t>(around);
    for (uint32_t bits = at - 10000; bits != at + 10000; ++bits) {
      ASSERT_TRUE(SameBits(std::bit_cast<float>(bits))) << bits;
      ASSERT_TRUE(SameBits(-std::bit_cast<float>(bits))) << bits;
    }
  }
}

TEST(LossMathTest, SigmoidCrossEntropyAtTheEnds) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const SigmoidCrossEntropyMath math;
  EXPECT_EQ(math.Loss(1000, 1), 0);
  EXPECT_EQ(math.Loss(-1000, 1), 1000);
  EXPECT_EQ(math.Loss(-kInf, 1), kInf);
  EXPECT_NEAR(math.Loss(0, 1), 0.6931472, 1e-7);
  EXPECT_TRUE(std::isnan(math.Loss(std::nanf(""), 1)));
}

// A device has no other way to refuse it.
TEST(LossMathTest, AListWithANegativeRelevanceHasNoNumbers) {
  const auto sum = [](int64_t n, const auto& term) {
    float all = 0;
    for (int64_t i = 0; i < n; ++i) all += term(i);
    return all;
  };
  const float scores[] = {1, 2, 3}, good[] = {0, 2, 1}, bad[] = {2, -1, 1};
  float softmax[3], dx[3];
  EXPECT_FALSE(std::isnan(ListwiseSoftmaxMath{}.Loss(sum, 3, scores, good, softmax)));
  EXPECT_TRUE(std::isnan(ListwiseSoftmaxMath{}.Loss(sum, 3, scores, bad, softmax)));
  ListwiseSoftmaxMath{}.Dx(sum, 3, bad, softmax, 1, dx);
  EXPECT_THAT(dx, ::testing::Each(::testing::IsNan()));
}

}  // namespace
}  // namespace weir
