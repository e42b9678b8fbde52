#include "framework/wire/codecs.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "framework/tensor/float16.h"
#include "framework/wire/buffer_pool.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr v1::WireFormat kAll[] = {v1::WIRE_FLOAT32, v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8};

TEST(CodecsTest, EveryFloat16IsItselfAndOthersGoToTheNearestEven) {
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

TEST(CodecsTest, WhatIsBeyondAFormatStaysFiniteAndWhatIsNotFiniteStays) {
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

TEST(CodecsTest, BFloat16GoesToTheNearestEven) {
  EXPECT_EQ(BFloat16Of(1.0f), 0x3f80);
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // half way, even below
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // half way, even above
  EXPECT_EQ(BFloat16Of(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

TEST(CodecsTest, Int8HasAScaleForEachGroup) {
  const std::vector<float> in = {127, -63.6f, 0, 1, 0.5f, 0, -0.25f, 0.0001f, std::nanf(""), 1, 2, 3, 1e-41f, 0, 0, 0};
  WireBuffer bytes = BufferPool().Get(EncodedBytes(v1::WIRE_INT8, in.size(), 4));
  Encode(v1::WIRE_INT8, in.data(), in.size(), 4, bytes.data);
  std::vector<float> out(in.size());
  Decode(v1::WIRE_INT8, bytes.data, in.size(), 4, out.data());
  EXPECT_EQ(out[0], 127);
  EXPECT_EQ(out[1], -64);
  EXPECT_EQ(out[3], 1);
  EXPECT_EQ(out[4], 0.5f / 127 * 127);
  EXPECT_NEAR(out[6], -0.25f, 0.5f / 254);
  EXPECT_EQ(out[7], 0);
  for (size_t i = 8; i < 12; ++i) EXPECT_TRUE(std::isnan(out[i])) << i;
  for (size_t i = 12; i < 16; ++i) EXPECT_EQ(out[i], 0) << i;
}

TEST(CodecsTest, VectorsGiveWhatThePlainFormGives) {
  std::mt19937_64 random(3);
  BufferPool pool;
  for (int round = 0; round < 300; ++round) {
    const size_t group = 1 + random() % 40, n = random() % 700;
    std::vector<float> in(n);
    for (float& v : in) {
      const uint64_t r = random();
      // Any bits, or something like a gradient.
      v = r % 4 == 0 && round % 2 == 0
              ? std::bit_cast<float>(static_cast<uint32_t>(r >> 32))
              : static_cast<float>(static_cast<int64_t>(r >> 20) - (int64_t{1} << 43)) * 1e-14f;
    }
    for (const v1::WireFormat format : kAll) {
      const size_t size = EncodedBytes(format, n, group);
      WireBuffer fast = pool.Get(size), plain = pool.Get(size);
      Encode(format, in.data(), n, group, fast.data);
      EncodePlain(format, in.data(), n, group, plain.data);
      std::vector<float> a(n), b(n);
      Decode(format, fast.data, n, group, a.data());
      DecodePlain(format, plain.data, n, group, b.data());
      for (size_t i = 0; i < n; ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
            << v1::WireFormat_Name(format) << ": " << in[i] << " of " << n << " in groups of " << group;
      }
    }
  }
}

TEST(CodecsTest, SizesAndBackAgain) {
  EXPECT_EQ(EncodedBytes(v1::WIRE_FLOAT16, 100, 16), 200u);
  EXPECT_EQ(EncodedBytes(v1::WIRE_INT8, 100, 16), 64 + 100u);  // 7 scales
  EXPECT_EQ(EncodedBytes(v1::WIRE_INT8, 0, 16), 0u);
  for (const v1::WireFormat format : kAll) {
    for (const size_t group : {1, 7, 16, 256}) {
      for (size_t bytes = 0; bytes < 3000; bytes += 13) {
        const size_t groups = EncodedGroups(format, bytes, group);
        EXPECT_LE(EncodedBytes(format, groups * group, group), bytes);
        EXPECT_GT(EncodedBytes(format, (groups + 1) * group, group), bytes);
      }
    }
  }
}

}  // namespace
}  // namespace weir
