#include "tools/reporting/rounding.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "framework/tensor/float16.h"

namespace weir {
namespace {

#define WEIR_AVX2 __attribute__((target("avx2,f16c")))

// Sums of eight lanes.
struct Lanes {
  __m256d low, high;
  __m256 max;
  __m256i counted, beyond;  // minus the counts
};

// Adds the errors of eight values whose magnitudes are `exact` and become `rounded`. `counts`: finite and not 0.
WEIR_AVX2 inline void AddLanes(__m256 exact, __m256 rounded, __m256 counts, __m256 most, Lanes* lanes) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 distance = _mm256_andnot_ps(sign, _mm256_sub_ps(rounded, exact));
  const __m256 error = _mm256_and_ps(_mm256_div_ps(distance, exact), counts);
  lanes->low = _mm256_add_pd(lanes->low, _mm256_cvtps_pd(_mm256_castps256_ps128(error)));
  lanes->high = _mm256_add_pd(lanes->high, _mm256_cvtps_pd(_mm256_extractf128_ps(error, 1)));
  lanes->max = _mm256_max_ps(lanes->max, error);
  lanes->counted = _mm256_add_epi32(lanes->counted, _mm256_castps_si256(counts));
  const __m256 beyond = _mm256_and_ps(_mm256_cmp_ps(exact, most, _CMP_GT_OQ), counts);
  lanes->beyond = _mm256_add_epi32(lanes->beyond, _mm256_castps_si256(beyond));
}

WEIR_AVX2 inline RoundingErrors SumOf(const Lanes& lanes) {
  alignas(32) double sums[8];
  alignas(32) float most[8];
  alignas(32) int32_t counted[8], beyond[8];
  _mm256_store_pd(sums, lanes.low);
  _mm256_store_pd(sums + 4, lanes.high);
  _mm256_store_ps(most, lanes.max);
  _mm256_store_si256(reinterpret_cast<__m256i*>(counted), lanes.counted);
  _mm256_store_si256(reinterpret_cast<__m256i*>(beyond), lanes.beyond);
  RoundingErrors all;
  for (int i = 0; i < 8; ++i) {
    all.sum += sums[i];
    all.max = std::max(all.max, most[i]);
    all.values -= counted[i];
    all.beyond -= beyond[i];
  }
  return all;
}

WEIR_AVX2 inline Lanes NoLanes() {
  return {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_ps(), _mm256_setzero_si256(),
          _mm256_setzero_si256()};
}

// `values` is a multiple of eight long, and shorter than 2^34, so that counts of lanes do not overflow.
WEIR_AVX2 SixteenBitErrors ErrorsOfLanes(absl::Span<const float> values) {
  const __m256 sign = _mm256_set1_ps(-0.0f), infinity = _mm256_set1_ps(INFINITY);
  const __m256 most16 = _mm256_set1_ps(kMostFloat16), most_b16 = _mm256_set1_ps(kMostBFloat16);
  Lanes float16 = NoLanes(), bfloat16 = NoLanes();
  for (size_t i = 0; i < values.size(); i += 8) {
    const __m256 exact = _mm256_andnot_ps(sign, _mm256_loadu_ps(values.data() + i));
    const __m256 counts = _mm256_and_ps(_mm256_cmp_ps(exact, _mm256_setzero_ps(), _CMP_GT_OQ),
                                        _mm256_cmp_ps(exact, infinity, _CMP_LT_OQ));
    const __m128i half = _mm256_cvtps_ph(_mm256_min_ps(exact, most16), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    AddLanes(exact, _mm256_cvtph_ps(half), counts, most16, &float16);
    const __m256i bits = _mm256_castps_si256(_mm256_min_ps(exact, most_b16));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256 rounded = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    AddLanes(exact, rounded, counts, most_b16, &bfloat16);
  }
  return {.float16 = SumOf(float16), .bfloat16 = SumOf(bfloat16)};
}

}  // namespace

void RoundingErrors::Add(const RoundingErrors& other) {
  values += other.values;
  sum += other.sum;
  max = std::max(max, other.max);
  beyond += other.beyond;
}

RoundingErrors RoundingErrorsByValue(DType dtype, absl::Span<const float> values) {
  const float most = dtype == v1::FLOAT16 ? kMostFloat16 : kMostBFloat16;
  RoundingErrors errors;
  for (const float value : values) {
    const float exact = std::fabs(value);
    if (!(exact > 0) || !std::isfinite(exact)) continue;
    const float error = std::fabs(ToNearest(dtype, exact) - exact) / exact;
    ++errors.values;
    errors.sum += static_cast<double>(error);
    errors.max = std::max(errors.max, error);
    if (exact > most) ++errors.beyond;
  }
  return errors;
}

SixteenBitErrors RoundingErrorsOf(absl::Span<const float> values) {
  const size_t whole = HasFloat16Vectors() ? values.size() / 8 * 8 : 0;
  SixteenBitErrors errors;
  if (whole > 0) errors = ErrorsOfLanes(values.first(whole));
  const absl::Span<const float> rest = values.subspan(whole);
  errors.float16.Add(RoundingErrorsByValue(v1::FLOAT16, rest));
  errors.bfloat16.Add(RoundingErrorsByValue(v1::BFLOAT16, rest));
  return errors;
}

#undef WEIR_AVX2

}  // namespace weir
