#include "framework/runtime/row_values.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/tensor/float16.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Columns that share one block of random bits.
constexpr int kColumns = 8;

uint64_t LowCounter(int64_t step, int64_t block) {
  // 17 bits hold the block number: the widest row has 2^17 blocks.
  return static_cast<uint64_t>(step) << 17 | static_cast<uint64_t>(block);
}

uint16_t RandomBits(const PhiloxBlock& block, int column) {
  return static_cast<uint16_t>(block.v[column % kColumns / 2] >> (column % 2 == 0 ? 0 : 16));
}

uint16_t BitsOf(DType dtype, float value) { return dtype == v1::FLOAT16 ? Float16Of(value) : BFloat16Of(value); }
float ValueOf(DType dtype, uint16_t bits) { return dtype == v1::FLOAT16 ? OfFloat16(bits) : OfBFloat16(bits); }

// ------------------------------------------------------------------------------------------------------- vector forms

#define WEIR_AVX2 __attribute__((target("avx2,f16c")))

// Eight counters of the generator; each lane holds a word of one counter.
struct Counters {
  alignas(32) uint32_t word[4][8];
};

// Computes both halves of the products of 8 words by one word.
WEIR_AVX2 inline void Multiply(__m256i a, __m256i by, __m256i* low, __m256i* high) {
  const __m256i even = _mm256_mul_epu32(a, by), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), by);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

// Philox of framework/base/philox.h; random[i] gets the block of counter i.
WEIR_AVX2 inline void RandomBlocks(uint64_t key, const Counters& counters, __m128i random[8]) {
  __m256i c[4];
  for (int w = 0; w < 4; ++w) c[w] = _mm256_load_si256(reinterpret_cast<const __m256i*>(counters.word[w]));
  const __m256i m0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53u)),
                m1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57u));
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    __m256i low0, high0, low1, high1;
    Multiply(c[0], m0, &low0, &high0);
    Multiply(c[2], m1, &low1, &high1);
    c[0] = _mm256_xor_si256(_mm256_xor_si256(high1, c[1]), _mm256_set1_epi32(static_cast<int>(k0)));
    c[2] = _mm256_xor_si256(_mm256_xor_si256(high0, c[3]), _mm256_set1_epi32(static_cast<int>(k1)));
    c[1] = low1;
    c[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  // Transposes four words by eight lanes into eight blocks.
  const __m256i a = _mm256_unpacklo_epi32(c[0], c[1]), b = _mm256_unpackhi_epi32(c[0], c[1]);
  const __m256i d = _mm256_unpacklo_epi32(c[2], c[3]), e = _mm256_unpackhi_epi32(c[2], c[3]);
  const __m256i blocks[4] = {_mm256_unpacklo_epi64(a, d), _mm256_unpackhi_epi64(a, d), _mm256_unpacklo_epi64(b, e),
                             _mm256_unpackhi_epi64(b, e)};
  for (int i = 0; i < 4; ++i) {
    random[i] = _mm256_castsi256_si128(blocks[i]);
    random[i + 4] = _mm256_extracti128_si256(blocks[i], 1);
  }
}

// Rounds eight values with one random number each. Within one exponent the distance to the lower neighbour is in the
// low bits of the float, so adding random bits there rounds up by carry, into the exponent if need be.
template <DType kType>
WEIR_AVX2 inline __m128i RoundLanes(__m256 x, __m128i random) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i r = _mm256_cvtepu16_epi32(random);
  const __m256i infinity = _mm256_set1_epi32(0x7f800000);
  const __m256i finite = _mm256_cmpgt_epi32(infinity, magnitude), nan = _mm256_cmpgt_epi32(magnitude, infinity);
  __m256i rounded, special;
  if constexpr (kType == v1::FLOAT16) {
    // Rounding drops 13 bits; random bits below them cannot change the result.
    const __m256i normal = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_sub_epi32(magnitude, _mm256_set1_epi32(0x38000000)), _mm256_srli_epi32(r, 3)), 13);
    // Below 2^-14 neighbours are 2^-24 apart.
    const __m256i parts = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p40f)));
    const __m256i below = _mm256_srli_epi32(_mm256_add_epi32(parts, r), 16);
    const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x38800000), magnitude);
    rounded = _mm256_min_epi32(_mm256_blendv_epi8(normal, below, small), _mm256_set1_epi32(0x7bff));
    special = _mm256_or_si256(_mm256_set1_epi32(0x7c00), _mm256_and_si256(nan, _mm256_set1_epi32(0x200)));
  } else {
    rounded = _mm256_min_epi32(_mm256_srli_epi32(_mm256_add_epi32(magnitude, r), 16), _mm256_set1_epi32(0x7f7f));
    special = _mm256_or_si256(_mm256_set1_epi32(0x7f80), _mm256_and_si256(nan, _mm256_set1_epi32(0x40)));
  }
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000));
  const __m256i all = _mm256_or_si256(_mm256_blendv_epi8(special, rounded, finite), sign);
  return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

template <DType kType>
WEIR_AVX2 void StoreVector(uint64_t key, int64_t step, int64_t n, const int64_t* ids, int width,
                           const float* const* from, char* const* to) {
  const int blocks = (width + kColumns - 1) / kColumns;
  int64_t row = 0;
  int block = 0;
  while (row < n) {
    // Collects up to eight pieces of rows, of one or several rows, for one call of RandomBlocks.
    struct {
      int64_t row;
      int column;
    } pieces[8];
    Counters counters;
    int count = 0;
    for (; count < 8 && row < n; ++count) {
      const uint64_t low = LowCounter(step, block), high = static_cast<uint64_t>(ids[row]);
      counters.word[0][count] = static_cast<uint32_t>(low);
      counters.word[1][count] = static_cast<uint32_t>(low >> 32);
      counters.word[2][count] = static_cast<uint32_t>(high);
      counters.word[3][count] = static_cast<uint32_t>(high >> 32);
      pieces[count] = {row, block * kColumns};
      if (++block == blocks) {
        block = 0;
        ++row;
      }
    }
    for (int i = count; i < 8; ++i) {
      for (int w = 0; w < 4; ++w) counters.word[w][i] = 0;
    }
    __m128i random[8];
    RandomBlocks(key, counters, random);
    for (int i = 0; i < count; ++i) {
      const float* const values = from[pieces[i].row] + pieces[i].column;
      char* const out = to[pieces[i].row] + pieces[i].column * static_cast<int>(sizeof(uint16_t));
      const int columns = width - pieces[i].column;
      if (columns >= kColumns) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), RoundLanes<kType>(_mm256_loadu_ps(values), random[i]));
        continue;
      }
      alignas(32) float some[kColumns] = {};
      for (int j = 0; j < columns; ++j) some[j] = values[j];
      alignas(16) uint16_t rounded[kColumns];
      _mm_store_si128(reinterpret_cast<__m128i*>(rounded), RoundLanes<kType>(_mm256_load_ps(some), random[i]));
      for (int j = 0; j < columns; ++j) std::memcpy(out + 2 * j, rounded + j, sizeof(uint16_t));
    }
  }
}

WEIR_AVX2 void LoadFloat16Vector(const char* from, int width, float* to) {
  int j = 0;
  for (; j + 8 <= width; j += 8) {
    _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * j))));
  }
  if (j + 4 <= width) {
    _mm_storeu_ps(to + j, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 2 * j))));
    j += 4;
  }
  for (; j < width; ++j) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * j, sizeof(bits));
    to[j] = _cvtsh_ss(bits);
  }
}

WEIR_AVX2 void LoadBFloat16Vector(const char* from, int width, float* to) {
  int j = 0;
  for (; j + 8 <= width; j += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * j)));
    _mm256_storeu_ps(to + j, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  for (; j < width; ++j) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * j, sizeof(bits));
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    std::memcpy(to + j, &wide, sizeof(wide));
  }
}

}  // namespace

float RoundAtRandom(DType dtype, float value, uint16_t random) {
  if (dtype == v1::FLOAT32) return value;
  // Infinity stays; every NaN becomes the canonical NaN with its sign.
  if (std::isinf(value)) return value;
  if (std::isnan(value)) return std::copysign(ToNearest(dtype, std::nanf("")), value);
  const bool half = dtype == v1::FLOAT16;
  const double magnitude = std::abs(static_cast<double>(value));
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent - 1), 2^exponent)
  const double apart = std::ldexp(1.0, std::max(exponent - 1, half ? -14 : -126) - (half ? 10 : 7));
  const double lower = std::floor(magnitude / apart) * apart;
  const double parts = std::nearbyint((magnitude - lower) / apart * 65536);
  const double rounded = parts + random >= 65536 ? lower + apart : lower;
  const double most = half ? kMostFloat16 : kMostBFloat16;
  return std::copysign(static_cast<float>(std::min(rounded, most)), value);
}

bool RowValues::Has(DType dtype) { return dtype == v1::FLOAT32 || dtype == v1::FLOAT16 || dtype == v1::BFLOAT16; }

int64_t RowValues::BytesOf(DType dtype, int64_t width) {
  return dtype == v1::FLOAT32 ? 4 * width : (2 * width + 3) / 4 * 4;
}

RowValues::RowValues(DType dtype, uint64_t seed, std::string_view table)
    : dtype_(dtype), key_([&] {
        const std::string name = absl::StrCat("rounding of ", absl::string_view(table.data(), table.size()));
        return StableHash(name.data(), name.size(), seed);
      }()) {
  CHECK(Has(dtype)) << v1::DType_Name(dtype);
}

void RowValues::Load(const char* from, int width, float* to) const {
  if (is_float32()) {
    std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  if (HasFloat16Vectors()) return (dtype_ == v1::FLOAT16 ? LoadFloat16Vector : LoadBFloat16Vector)(from, width, to);
  for (int j = 0; j < width; ++j) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * j, sizeof(bits));
    to[j] = ValueOf(dtype_, bits);
  }
}

void RowValues::StoreNearest(const float* from, int width, char* to) const {
  if (is_float32()) {
    std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  for (int j = 0; j < width; ++j) {
    // NaN gets the same canonical bits as in Store.
    const uint16_t bits = BitsOf(dtype_, std::isnan(from[j]) ? std::copysign(std::nanf(""), from[j]) : from[j]);
    std::memcpy(to + 2 * j, &bits, sizeof(bits));
  }
  if (width % 2 != 0) std::memset(to + 2 * width, 0, sizeof(uint16_t));
}

void RowValues::Store(int64_t step, int64_t n, const int64_t* ids, int width, const float* const* from,
                      char* const* to) const {
  if (is_float32()) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(to[i], from[i], static_cast<size_t>(width) * sizeof(float));
    return;
  }
  if (HasFloat16Vectors()) {
    return (dtype_ == v1::FLOAT16 ? StoreVector<v1::FLOAT16> : StoreVector<v1::BFLOAT16>)(key_, step, n, ids, width,
                                                                                          from, to);
  }
  for (int64_t i = 0; i < n; ++i) {
    PhiloxBlock block{};
    for (int j = 0; j < width; ++j) {
      if (j % kColumns == 0) block = Philox(key_, LowCounter(step, j / kColumns), static_cast<uint64_t>(ids[i]));
      const uint16_t bits = BitsOf(dtype_, RoundAtRandom(dtype_, from[i][j], RandomBits(block, j)));
      std::memcpy(to[i] + 2 * j, &bits, sizeof(bits));
    }
  }
}

void RowValues::Round(int64_t step, int64_t id, absl::Span<float> row) const {
  for (size_t j = 0; j < row.size(); ++j) {
    const int column = static_cast<int>(j);
    const PhiloxBlock block = Philox(key_, LowCounter(step, column / kColumns), static_cast<uint64_t>(id));
    row[j] = RoundAtRandom(dtype_, row[j], RandomBits(block, column));
  }
}

}  // namespace weir
