// Stored forms of values that are reduced, and the types in which they are computed.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_STORED_H_
#define WEIR_FRAMEWORK_COLLECTIVE_STORED_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "framework/tensor/float16.h"

namespace weir {

struct Float16Bits {
  uint16_t bits;
};
struct BFloat16Bits {
  uint16_t bits;
};

template <typename T>
T Widen(T value) {
  return value;
}
inline float Widen(Float16Bits value) { return OfFloat16(value.bits); }
inline float Widen(BFloat16Bits value) { return OfBFloat16(value.bits); }

// Unlike Float16Of, a sum that does not fit becomes infinite: the caller must see that it overflowed.
inline float Overflowing(float value, float least_infinite) {
  return std::abs(value) >= least_infinite ? std::copysign(std::numeric_limits<float>::infinity(), value) : value;
}

template <typename Stored, typename T>
Stored Narrow(T value) {
  if constexpr (std::is_same_v<Stored, Float16Bits>) {
    // Values less than half a unit above the greatest round down to it.
    return {Float16Of(Overflowing(value, 65520.0F))};
  } else if constexpr (std::is_same_v<Stored, BFloat16Bits>) {
    return {BFloat16Of(Overflowing(value, 0x1.ffp127F))};
  } else {
    return value;
  }
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_STORED_H_
