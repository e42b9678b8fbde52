// Check of the values that an update has written. One that is not finite ends the job at once: no step that reads it
// can take effect, and the checkpoints before it are good.
#ifndef WEIR_PSERVER_TABLES_FINITE_VALUES_H_
#define WEIR_PSERVER_TABLES_FINITE_VALUES_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// Checks that all values of many short arrays are finite, without a branch for any of them.
class AllFinite {
 public:
  void Add(const float* values, int64_t n) {
    if (n < 4) {
      for (int64_t i = 0; i < n; ++i) found_ = _mm_or_si128(found_, Look(_mm_load_ss(values + i)));
      return;
    }
    for (int64_t i = 0; i + 4 < n; i += 4) found_ = _mm_or_si128(found_, Look(_mm_loadu_ps(values + i)));
    // The last four values; some of them may have been checked already.
    found_ = _mm_or_si128(found_, Look(_mm_loadu_ps(values + n - 4)));
  }
  bool value() const { return _mm_movemask_ps(_mm_castsi128_ps(found_)) == 0; }

 private:
  // Adding 1 to the exponent carries into the sign where all its bits are set.
  static __m128i Look(__m128 values) {
    const __m128i exponent = _mm_set1_epi32(0x7f800000), one = _mm_set1_epi32(0x00800000);
    return _mm_add_epi32(_mm_and_si128(_mm_castps_si128(values), exponent), one);
  }

  __m128i found_ = _mm_setzero_si128();  // negative: not finite
};

// Returns the position of the first value that is infinite or NaN; n if there is none.
inline int64_t FirstNotFinite(const float* values, int64_t n) {
  constexpr int64_t kPiece = 64;
  constexpr uint32_t kExponent = 0x7f800000;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(n, begin + kPiece);
    AllFinite finite;
    finite.Add(values + begin, end - begin);
    for (int64_t i = begin; i < end && !finite.value(); ++i) {
      if ((std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent) return i;
    }
  }
  return n;
}

// Returns the error for a value that an update has made infinite or NaN: FailedPrecondition. `where`: such as "row 7".
absl::Status NotFinite(std::string_view where, float value);

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_FINITE_VALUES_H_
