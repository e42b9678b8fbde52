#include "framework/wire/codecs.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "framework/wire/buffer_pool.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr v1::WireFormat kAll[] = {v1::WIRE_FLOAT32, v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8};

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

// Encodes groups of two in WIRE_FLOAT16 with exponents, and decodes them.
struct WithExponents {
  std::string exponents;
  std::vector<float> values;
};
WithExponents ThereAndBack(const std::vector<float>& in) {
  WireBuffer bytes = BufferPool().Get(EncodedBytes(v1::WIRE_FLOAT16, in.size(), 2));
  WithExponents result = {EncodeWithExponents(in.data(), in.size(), 2, bytes.data), std::vector<float>(in.size())};
  EXPECT_TRUE(AreExponents(result.exponents, in.size(), 2));
  DecodeWithExponents(bytes.data, in.size(), 2, result.exponents, result.values.data());
  return result;
}

TEST(CodecsTest, AGroupBeyondFloat16HasTheLeastExponentThatMakesItFit) {
  // 65504 * 2 = 131008 is the greatest with exponent 1; 2^17 needs 2. What is not finite has no part in it.
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {65504, 1, 65505, 1, -131008, 0.5f, 131072, inf, -inf, 3, 1e38f, 1};
  const WithExponents out = ThereAndBack(in);
  EXPECT_EQ(out.exponents, std::string("\0\1\1\2\0\x6f", 6));
  EXPECT_EQ(out.values,
            std::vector<float>({65504, 1, 65504, 1, -131008, 0.5f, 131072, inf, -inf, 3, std::ldexp(2408.0f, 115), 0}));
}

TEST(CodecsTest, EveryFiniteFloatFitsWithAnExponent) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    const float back = ThereAndBack({value}).values[0];
    EXPECT_LE(std::abs(back - value), std::max(std::abs(value) / 2048, 0x1p-25f)) << value;
  }
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(ThereAndBack({most, -most}).values, std::vector<float>({65504 * 0x1p112f, -65504 * 0x1p112f}));
}

TEST(CodecsTest, ValuesBeyondFloat16AreCounted) {
  std::vector<float> in(19, 65504);
  EXPECT_EQ(CountBeyondFloat16(in.data(), in.size()), 0u);
  in[0] = std::nanf("");
  in[3] = 65505;
  in[8] = -3e38f;
  in[9] = -std::numeric_limits<float>::infinity();
  in[18] = 1e5f;
  EXPECT_EQ(CountBeyondFloat16(in.data(), in.size()), 3u);
}

TEST(CodecsTest, ExponentsAreOneForEachGroupAndNotTooLarge) {
  EXPECT_TRUE(AreExponents(std::string("\0\x70", 2), 5, 3));
  EXPECT_TRUE(AreExponents("", 0, 3));
  EXPECT_FALSE(AreExponents(std::string("\0", 1), 5, 3));
  EXPECT_FALSE(AreExponents(std::string("\0\0\0", 3), 5, 3));
  EXPECT_FALSE(AreExponents(std::string("\0\x71", 2), 5, 3));
  EXPECT_FALSE(AreExponents(std::string("\xff\0", 2), 5, 3));
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
