// Check of the values that an update has written. One that is not finite ends the job at once: no step that reads it
// can take effect, and the checkpoints before it are good.
#ifndef WEIR_PSERVER_TABLES_FINITE_VALUES_H_
#define WEIR_PSERVER_TABLES_FINITE_VALUES_H_

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// Returns the position of the first value that is infinite or NaN; n if there is none.
inline int64_t FirstNotFinite(const float* values, int64_t n) {
  // Adding 1 to the exponent carries into the sign where all its bits are set.
  constexpr int32_t kExponent = 0x7f800000, kOne = 0x00800000;
  const __m128i exponent = _mm_set1_epi32(kExponent), one = _mm_set1_epi32(kOne);
  const auto look = [&](const float* at) {
    return _mm_add_epi32(_mm_and_si128(_mm_castps_si128(_mm_loadu_ps(at)), exponent), one);
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i found = _mm_or_si128(_mm_or_si128(look(values + i), look(values + i + 4)),
                                       _mm_or_si128(look(values + i + 8), look(values + i + 12)));
    if (_mm_movemask_ps(_mm_castsi128_ps(found)) != 0) break;
  }
  for (; i + 4 <= n; i += 4) {
    if (_mm_movemask_ps(_mm_castsi128_ps(look(values + i))) != 0) break;
  }
  while (i < n && (std::bit_cast<uint32_t>(values[i]) & uint32_t{kExponent}) != uint32_t{kExponent}) ++i;
  return i;
}

// Returns the error for a value that an update has made infinite or NaN: FailedPrecondition. `where`: such as "row 7".
absl::Status NotFinite(std::string_view where, float value);

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_FINITE_VALUES_H_
