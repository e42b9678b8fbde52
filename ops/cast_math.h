// Arithmetic of cast, for CPU and CUDA. To an integer: fractions are truncated towards 0, values outside the type's
// range become its nearest value, NaN becomes 0. To a float: rounded to nearest, infinite outside the range. To bool:
// true unless 0, so true for NaN.
#ifndef WEIR_OPS_CAST_MATH_H_
#define WEIR_OPS_CAST_MATH_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/inline.h"

namespace weir {

template <typename T>
inline constexpr T kLeastOf = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T kMostOf = std::numeric_limits<T>::max();

template <typename To, typename From>
WEIR_MATH To Cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else {
    constexpr To kLeast = kLeastOf<To>, kMost = kMostOf<To>;
    if constexpr (std::is_floating_point_v<From>) {
      if (x != x) return 0;
      // Exact as a double; the maximum of int64 rounds up to 2^63, hence >=.
      const double v = static_cast<double>(x);
      if (v >= static_cast<double>(kMost)) return kMost;
      if (v <= static_cast<double>(kLeast)) return kLeast;
      return static_cast<To>(v);
    } else {
      const int64_t v = static_cast<int64_t>(x);
      if (v > static_cast<int64_t>(kMost)) return kMost;
      if (v < static_cast<int64_t>(kLeast)) return kLeast;
      return static_cast<To>(v);
    }
  }
}

}  // namespace weir

#endif  // WEIR_OPS_CAST_MATH_H_
