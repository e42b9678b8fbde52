// Shared code of parsers that read eight fields of a line at a time, on a processor with AVX-512 that packs bytes: Ice
// Lake, Zen 4 and later.
#ifndef WEIR_FRAMEWORK_FORMATS_FIELDS512_H_
#define WEIR_FRAMEWORK_FORMATS_FIELDS512_H_

#include <immintrin.h>

#include <cstdint>

#define WEIR_FOR_FIELDS512 __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi2,bmi2")))

namespace weir {

// Returns true if functions of WEIR_FOR_FIELDS512 may be called.
inline bool HasFields512() {
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
  return has;
}

// Writes the positions of the set bits of `marks`, plus `at`, to places[0, their number). The 64 places from `places`
// on may be overwritten.
WEIR_FOR_FIELDS512 inline void AddPlaces(uint64_t marks, int32_t at, int32_t* places) {
  const __m512i place =
      _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40,
                      39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                      15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i found = _mm512_maskz_compress_epi8(marks, place);
  const __m512i base = _mm512_set1_epi32(at);
  const int count = __builtin_popcountll(marks);
  _mm512_storeu_si512(places, _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(found)), base));
  if (count <= 16) return;
  _mm512_storeu_si512(places + 16, _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 1)), base));
  if (count <= 32) return;
  _mm512_storeu_si512(places + 32, _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 2)), base));
  _mm512_storeu_si512(places + 48, _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 3)), base));
}

// Returns the number of bits by which the bytes of a field of up to eight move up so that its last byte is the highest.
WEIR_FOR_FIELDS512 inline __m512i ShiftOf(__m512i sizes) {
  return _mm512_sub_epi64(_mm512_set1_epi64(64), _mm512_slli_epi64(sizes, 3));
}

// Returns the values of numbers of eight decimal digits each, with the first digit in the lowest byte.
WEIR_FOR_FIELDS512 inline __m512i CombineDigits(__m512i digits) {
  const __m512i twos = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x010A));
  const __m512i fours = _mm512_madd_epi16(twos, _mm512_set1_epi32(0x00010064));
  return _mm512_add_epi64(_mm512_mul_epu32(fours, _mm512_set1_epi64(10000)), _mm512_srli_epi64(fours, 32));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_FIELDS512_H_
