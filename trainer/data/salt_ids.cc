#include "trainer/data/salt_ids.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "framework/base/feature_id.h"

// Eight products of 64 bits at a time: what mixing an id is made of.
#define WEIR_FOR_AVX512DQ __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace weir {
namespace {

WEIR_FOR_AVX512DQ inline __m512i Mix8(__m512i x) {
  x = _mm512_add_epi64(x, _mm512_set1_epi64(static_cast<int64_t>(0x9e3779b97f4a7c15ULL)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                         _mm512_set1_epi64(static_cast<int64_t>(0xbf58476d1ce4e5b9ULL)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                         _mm512_set1_epi64(static_cast<int64_t>(0x94d049bb133111ebULL)));
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

WEIR_FOR_AVX512DQ void SaltIdsAvx512(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out) {
  for (size_t i = 0; i < n; i += 8) {
    const __mmask8 there = static_cast<__mmask8>((1u << std::min<size_t>(n - i, 8)) - 1);
    const __m512i raw = wide ? _mm512_maskz_loadu_epi64(there, ids + i * 8)
                             : _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(there, ids + i * 4));
    const __m512i salted = Mix8(_mm512_xor_si512(Mix8(raw), _mm512_maskz_loadu_epi64(there, salts + i)));
    _mm512_mask_storeu_epi64(out + i, there, salted);
  }
}

WEIR_FOR_AVX512DQ size_t SaltIdsOrMissingAvx512(const uint64_t* salts, const int64_t* missing, const char* counts,
                                                const char* ids, bool wide, size_t n, int64_t* out) {
  size_t taken = 0;
  for (size_t i = 0; i < n; i += 8) {
    const __mmask8 there = static_cast<__mmask8>((1u << std::min<size_t>(n - i, 8)) - 1);
    const __m128i eight = _mm_maskz_loadu_epi16(there, counts + i * 2);
    const __mmask8 present = _mm_test_epi16_mask(eight, eight);
    const int count = __builtin_popcount(present);
    const __mmask8 first = static_cast<__mmask8>((1u << count) - 1);
    const __m512i packed = wide ? _mm512_maskz_loadu_epi64(first, ids + taken * 8)
                                : _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(first, ids + taken * 4));
    const __m512i raw = _mm512_maskz_expand_epi64(present, packed);
    const __m512i salted = Mix8(_mm512_xor_si512(Mix8(raw), _mm512_maskz_loadu_epi64(there, salts + i)));
    _mm512_mask_storeu_epi64(out + i, there,
                             _mm512_mask_blend_epi64(present, _mm512_maskz_loadu_epi64(there, missing + i), salted));
    taken += static_cast<size_t>(count);
  }
  return taken;
}

bool HasAvx512() {
  static const bool has =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

}  // namespace

void SaltIdsPlainly(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out) {
  for (size_t i = 0; i < n; ++i) {
    int64_t id = 0;
    std::memcpy(&id, ids + i * (wide ? 8 : 4), wide ? 8 : 4);
    out[i] = SaltId(salts[i], id);
  }
}

size_t SaltIdsOrMissingPlainly(const uint64_t* salts, const int64_t* missing, const char* counts, const char* ids,
                               bool wide, size_t n, int64_t* out) {
  size_t taken = 0;
  for (size_t i = 0; i < n; ++i) {
    uint16_t count;
    std::memcpy(&count, counts + i * 2, 2);
    out[i] = missing[i];
    if (count == 0) continue;
    SaltIdsPlainly(salts + i, ids + taken * (wide ? 8 : 4), wide, 1, out + i);
    ++taken;
  }
  return taken;
}

void SaltIds(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out) {
  (HasAvx512() ? SaltIdsAvx512 : SaltIdsPlainly)(salts, ids, wide, n, out);
}

size_t SaltIdsOrMissing(const uint64_t* salts, const int64_t* missing, const char* counts, const char* ids, bool wide,
                        size_t n, int64_t* out) {
  return (HasAvx512() ? SaltIdsOrMissingAvx512 : SaltIdsOrMissingPlainly)(salts, missing, counts, ids, wide, n, out);
}

}  // namespace weir
