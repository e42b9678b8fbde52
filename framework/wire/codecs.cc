#include "framework/wire/codecs.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "framework/tensor/float16.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff, kMantissa = 0x7fffff, kInfinity = 0x7f800000;
constexpr uint32_t kMostFloat16Bits = std::bit_cast<uint32_t>(kMostFloat16);

size_t GroupsOf(size_t n, size_t group) { return (n + group - 1) / group; }

// Offset of the values of WIRE_INT8.
size_t ScaleBytes(size_t n, size_t group) { return AlignUp(GroupsOf(n, group) * sizeof(float)); }

// Returns the scale of a group: NaN if it holds a number that is not finite.
float ScaleOf(const float* in, size_t n) {
  uint32_t most = 0;  // magnitudes compare as their bits do, and Inf and NaN are above all others
  for (size_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(in[i]) & 0x7fffffffu);
  if (most >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  // 127 times the scale of the greatest float would be infinite, and of no other.
  const float scale = std::bit_cast<float>(std::min(most, kInfinity - 2)) / 127;
  return scale < std::numeric_limits<float>::min() ? 0 : scale;
}

// Divides the n values of a group by its scale and rounds them. A scale of 0 or NaN encodes zeros.
void EncodeInt8Plain(const float* in, size_t n, float scale, int8_t* out) {
  if (!(scale > 0)) {  // 0 or NaN
    std::memset(out, 0, n);
    return;
  }
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<int8_t>(std::clamp(std::nearbyint(in[i] / scale), -127.0f, 127.0f));
}

// -------------------------------------------------------------------------------------------------------- vector forms

#define WEIR_AVX2 __attribute__((target("avx2,f16c")))

WEIR_AVX2 void EncodeFloat16Vector(const float* in, size_t n, uint16_t* out) {
  const __m256 most = _mm256_set1_ps(kMostFloat16), least = _mm256_set1_ps(-kMostFloat16);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(kInfinity));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(in + i);
    // min and max return the second operand if one is NaN, so NaN passes through.
    const __m256 clamped = _mm256_max_ps(least, _mm256_min_ps(most, x));
    const __m256 infinite = _mm256_cmp_ps(_mm256_and_ps(x, magnitude), infinity, _CMP_EQ_OQ);
    const __m256 value = _mm256_blendv_ps(clamped, x, infinite);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) out[i] = Float16Of(in[i]);
}

WEIR_AVX2 void DecodeFloat16Vector(const uint16_t* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  for (; i < n; ++i) out[i] = OfFloat16(in[i]);
}

WEIR_AVX2 __m256i BFloat16Lanes(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(magnitude, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  // Rounding must not turn a finite number into infinity.
  const __m256i clamped = _mm256_min_epi32(rounded, _mm256_set1_epi32(0x7f7f));
  const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(kInfinity), magnitude);
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kInfinity));
  const __m256i special =
      _mm256_or_si256(_mm256_srli_epi32(magnitude, 16), _mm256_and_si256(nan, _mm256_set1_epi32(0x40)));
  const __m256i value = _mm256_blendv_epi8(special, clamped, finite);
  return _mm256_or_si256(value, _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000)));
}

WEIR_AVX2 void EncodeBFloat16Vector(const float* in, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i packed =
        _mm256_packus_epi32(BFloat16Lanes(_mm256_loadu_ps(in + i)), BFloat16Lanes(_mm256_loadu_ps(in + i + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  for (; i < n; ++i) out[i] = BFloat16Of(in[i]);
}

WEIR_AVX2 void DecodeBFloat16Vector(const uint16_t* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  for (; i < n; ++i) out[i] = OfBFloat16(in[i]);
}

WEIR_AVX2 float ScaleOfVector(const float* in, size_t n) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(in + i)), magnitude));
  }
  alignas(32) float lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  for (; i < n; ++i)
    lanes[0] =
        std::bit_cast<float>(std::max(std::bit_cast<uint32_t>(lanes[0]), std::bit_cast<uint32_t>(in[i]) & 0x7fffffffu));
  return ScaleOf(lanes, 8);
}

WEIR_AVX2 void EncodeInt8Vector(const float* in, size_t n, float scale, int8_t* out) {
  if (!(scale > 0)) {
    std::memset(out, 0, n);
    return;
  }
  const __m256 by = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    // |x / scale| is at most 127 plus a rounding error.
    const __m256i q = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(in + i), by));
    const __m256i clamped = _mm256_max_epi32(_mm256_min_epi32(q, _mm256_set1_epi32(127)), _mm256_set1_epi32(-127));
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(clamped), _mm256_extracti128_si256(clamped, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), _mm_packs_epi16(half, half));
  }
  EncodeInt8Plain(in + i, n - i, scale, out + i);
}

WEIR_AVX2 void DecodeInt8Vector(const int8_t* in, size_t n, float scale, float* out) {
  const __m256 by = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i)));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(q), by));
  }
  for (; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

size_t CountBeyondFloat16Plain(const float* in, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(in[i]) & kMagnitude;
    count += magnitude > kMostFloat16Bits && magnitude < kInfinity ? 1 : 0;
  }
  return count;
}

WEIR_AVX2 size_t CountBeyondFloat16Vector(const float* in, size_t n) {
  const __m256i magnitude = _mm256_set1_epi32(kMagnitude);
  const __m256i most = _mm256_set1_epi32(kMostFloat16Bits), infinity = _mm256_set1_epi32(kInfinity);
  size_t count = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i x = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(in + i)), magnitude);
    const __m256i beyond = _mm256_and_si256(_mm256_cmpgt_epi32(x, most), _mm256_cmpgt_epi32(infinity, x));
    count += static_cast<size_t>(std::popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(beyond)))));
  }
  return count + CountBeyondFloat16Plain(in + i, n - i);
}

void EncodeAs(v1::WireFormat format, const float* in, size_t n, size_t group, char* out, bool vectors) {
  if (n == 0) return;  // an empty span may have a null pointer
  uint16_t* const halves = reinterpret_cast<uint16_t*>(out);
  switch (format) {
    case v1::WIRE_FLOAT32:
      std::memcpy(out, in, n * sizeof(float));
      return;
    case v1::WIRE_FLOAT16:
      if (vectors) return EncodeFloat16Vector(in, n, halves);
      for (size_t i = 0; i < n; ++i) halves[i] = Float16Of(in[i]);
      return;
    case v1::WIRE_BFLOAT16:
      if (vectors) return EncodeBFloat16Vector(in, n, halves);
      for (size_t i = 0; i < n; ++i) halves[i] = BFloat16Of(in[i]);
      return;
    case v1::WIRE_INT8: {
      const size_t groups = GroupsOf(n, group), scales = ScaleBytes(n, group);
      int8_t* const values = reinterpret_cast<int8_t*>(out + scales);
      std::memset(out + groups * sizeof(float), 0, scales - groups * sizeof(float));
      for (size_t g = 0; g < groups; ++g) {
        const size_t begin = g * group, size = std::min(group, n - begin);
        const float scale = vectors ? ScaleOfVector(in + begin, size) : ScaleOf(in + begin, size);
        std::memcpy(out + g * sizeof(float), &scale, sizeof(scale));
        (vectors ? EncodeInt8Vector : EncodeInt8Plain)(in + begin, size, scale, values + begin);
      }
      return;
    }
  }
}

void DecodeAs(v1::WireFormat format, const char* in, size_t n, size_t group, float* out, bool vectors) {
  if (n == 0) return;
  const uint16_t* const halves = reinterpret_cast<const uint16_t*>(in);
  switch (format) {
    case v1::WIRE_FLOAT32:
      std::memcpy(out, in, n * sizeof(float));
      return;
    case v1::WIRE_FLOAT16:
      if (vectors) return DecodeFloat16Vector(halves, n, out);
      for (size_t i = 0; i < n; ++i) out[i] = OfFloat16(halves[i]);
      return;
    case v1::WIRE_BFLOAT16:
      if (vectors) return DecodeBFloat16Vector(halves, n, out);
      for (size_t i = 0; i < n; ++i) out[i] = OfBFloat16(halves[i]);
      return;
    case v1::WIRE_INT8: {
      const int8_t* const values = reinterpret_cast<const int8_t*>(in + ScaleBytes(n, group));
      for (size_t g = 0; g < GroupsOf(n, group); ++g) {
        const size_t begin = g * group, size = std::min(group, n - begin);
        float scale;
        std::memcpy(&scale, in + g * sizeof(float), sizeof(scale));
        if (vectors) {
          DecodeInt8Vector(values + begin, size, scale, out + begin);
          continue;
        }
        for (size_t i = begin; i < begin + size; ++i) out[i] = static_cast<float>(values[i]) * scale;
      }
      return;
    }
  }
}

// Returns 2^e, -126 <= e <= 127.
float PowerOfTwo(int e) { return std::bit_cast<float>(static_cast<uint32_t>(127 + e) << 23); }

// Returns the least exponent by which the finite values of a group fit.
int ExponentOf(const float* in, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(in[i]) & kMagnitude;
    if (magnitude < kInfinity) most = std::max(most, magnitude);
  }
  if (most <= kMostFloat16Bits) return 0;
  const int exponent = static_cast<int>(most >> 23) - static_cast<int>(kMostFloat16Bits >> 23);
  const bool fits = (most & kMantissa) <= (kMostFloat16Bits & kMantissa);
  return std::min(fits ? exponent : exponent + 1, kMostExponent);
}

}  // namespace

size_t CountBeyondFloat16(const float* in, size_t n) {
  return HasFloat16Vectors() ? CountBeyondFloat16Vector(in, n) : CountBeyondFloat16Plain(in, n);
}

std::string EncodeWithExponents(const float* in, size_t n, size_t group, char* out) {
  std::string exponents(GroupsOf(n, group), '\0');
  std::vector<float> scaled;
  for (size_t g = 0; g < exponents.size(); ++g) {
    const size_t begin = g * group, size = std::min(group, n - begin);
    const int exponent = ExponentOf(in + begin, size);
    exponents[g] = static_cast<char>(exponent);
    const float factor = PowerOfTwo(-exponent);
    scaled.resize(size);
    for (size_t i = 0; i < size; ++i) scaled[i] = in[begin + i] * factor;
    Encode(v1::WIRE_FLOAT16, scaled.data(), size, group, out + begin * sizeof(uint16_t));
  }
  return exponents;
}

void DecodeWithExponents(const char* in, size_t n, size_t group, std::string_view exponents, float* out) {
  CHECK(AreExponents(exponents, n, group));
  Decode(v1::WIRE_FLOAT16, in, n, group, out);
  for (size_t g = 0; g < exponents.size(); ++g) {
    if (exponents[g] == 0) continue;
    const float factor = PowerOfTwo(exponents[g]);
    const size_t begin = g * group, end = std::min(begin + group, n);
    for (size_t i = begin; i < end; ++i) out[i] *= factor;
  }
}

bool AreExponents(std::string_view exponents, size_t n, size_t group) {
  return exponents.size() == GroupsOf(n, group) && std::all_of(exponents.begin(), exponents.end(), [](char e) {
           return static_cast<unsigned char>(e) <= kMostExponent;
         });
}

size_t EncodedBytes(v1::WireFormat format, size_t n, size_t group) {
  switch (format) {
    case v1::WIRE_FLOAT32:
      return n * sizeof(float);
    case v1::WIRE_FLOAT16:
    case v1::WIRE_BFLOAT16:
      return n * sizeof(uint16_t);
    case v1::WIRE_INT8:
      return ScaleBytes(n, group) + n;
  }
  LOG(FATAL) << "format " << static_cast<int>(format);
}

size_t EncodedGroups(v1::WireFormat format, size_t bytes, size_t group) {
  // Starts at an upper bound and decreases, a few steps, until the groups and their padding fit.
  size_t groups = bytes / (format == v1::WIRE_INT8 ? group + sizeof(float) : EncodedBytes(format, group, group));
  while (groups > 0 && EncodedBytes(format, groups * group, group) > bytes) --groups;
  return groups;
}

void Encode(v1::WireFormat format, const float* in, size_t n, size_t group, char* out) {
  EncodeAs(format, in, n, group, out, HasFloat16Vectors());
}
void Decode(v1::WireFormat format, const char* in, size_t n, size_t group, float* out) {
  DecodeAs(format, in, n, group, out, HasFloat16Vectors());
}
void EncodePlain(v1::WireFormat format, const float* in, size_t n, size_t group, char* out) {
  EncodeAs(format, in, n, group, out, /*vectors=*/false);
}
void DecodePlain(v1::WireFormat format, const char* in, size_t n, size_t group, float* out) {
  DecodeAs(format, in, n, group, out, /*vectors=*/false);
}

}  // namespace weir
