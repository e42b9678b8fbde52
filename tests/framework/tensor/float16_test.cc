#include "framework/tensor/float16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Float16Test, EveryFloat16IsItselfAndOthersGoToTheNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = OfFloat16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(OfFloat16(Float16Of(value))));
      continue;
    }
    ASSERT_EQ(Float16Of(value), half) << value;
    // Half way to the next, a little less, a little more.
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const float next = OfFloat16(static_cast<uint16_t>(bits + 1)), middle = value / 2 + next / 2;
    ASSERT_EQ(Float16Of(middle), bits % 2 == 0 ? half : half + 1) << middle;
    ASSERT_EQ(Float16Of(std::nextafter(middle, value)), half);
    ASSERT_EQ(Float16Of(std::nextafter(middle, next)), half + 1);
  }
}

TEST(Float16Test, WhatIsBeyondAFormatStaysFiniteAndWhatIsNotFiniteStays) {
  EXPECT_EQ(OfFloat16(Float16Of(65504)), 65504);
  EXPECT_EQ(OfFloat16(Float16Of(65505)), 65504);
  EXPECT_EQ(OfFloat16(Float16Of(1e30f)), 65504);
  EXPECT_EQ(OfFloat16(Float16Of(-1e30f)), -65504);
  EXPECT_EQ(OfFloat16(Float16Of(kInf)), kInf);
  EXPECT_EQ(OfFloat16(Float16Of(-kInf)), -kInf);
  EXPECT_TRUE(std::isnan(OfFloat16(Float16Of(std::nanf("")))));
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(OfBFloat16(BFloat16Of(most)), std::bit_cast<float>(0x7f7f0000u));
  EXPECT_EQ(OfBFloat16(BFloat16Of(-most)), -std::bit_cast<float>(0x7f7f0000u));
  EXPECT_EQ(OfBFloat16(BFloat16Of(-kInf)), -kInf);
  // A NaN whose upper half alone would be Inf.
  EXPECT_TRUE(std::isnan(OfBFloat16(BFloat16Of(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::signbit(OfFloat16(Float16Of(-0.0f))));
}

TEST(Float16Test, BFloat16GoesToTheNearestEven) {
  EXPECT_EQ(BFloat16Of(1.0f), 0x3f80);
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // half way, even below
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // half way, even above
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

TEST(Float16Test, BoundsAreTheOutermostValuesInside) {
  EXPECT_EQ(NotBelow(v1::FLOAT16, 0.1), 0.1000366210937500f);
  EXPECT_EQ(NotAbove(v1::FLOAT16, 0.1), 0.0999755859375000f);
  EXPECT_EQ(NotBelow(v1::FLOAT16, -0.1), -0.0999755859375000f);
  EXPECT_EQ(NotAbove(v1::FLOAT16, -0.1), -0.1000366210937500f);
  EXPECT_EQ(NotBelow(v1::FLOAT16, 0.5), 0.5f);
  EXPECT_EQ(NotAbove(v1::BFLOAT16, 0.5), 0.5f);
  EXPECT_EQ(NotAbove(v1::BFLOAT16, 0.1), 0.099609375f);
  EXPECT_EQ(NotBelow(v1::FLOAT16, 1e-12), 0x1p-24f);
  EXPECT_EQ(NotAbove(v1::FLOAT16, 1e-12), 0.0f);
  EXPECT_EQ(NotBelow(v1::FLOAT16, 70000), kInf);
  EXPECT_EQ(NotAbove(v1::FLOAT16, 70000), kMostFloat16);
  EXPECT_EQ(NotBelow(v1::FLOAT16, -70000), -kMostFloat16);
  EXPECT_EQ(NotAbove(v1::FLOAT16, -70000), -kInf);
  EXPECT_EQ(NotAbove(v1::FLOAT32, 0.1), 0.0999999940395355f);
}

}  // namespace
}  // namespace weir
