// Functors that round floats to 16 bits: to nearest, ties to even. Values beyond the range become infinite; NaN stays
// NaN.
#ifndef WEIR_OPS_DEVICE_ROUNDING_FUNCTORS_H_
#define WEIR_OPS_DEVICE_ROUNDING_FUNCTORS_H_

#include <cstdint>
#include <cstring>

#include "framework/base/philox.h"

namespace weir {
namespace device {

WEIR_HOST_DEVICE inline uint16_t RoundToBFloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  // Past the greatest number comes the infinity.
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

WEIR_HOST_DEVICE inline uint16_t RoundToFloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // From 65520 on the infinity is nearer than 65504, or even.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) {
    return static_cast<uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
  }
  // Below 2^-14: multiples of 2^-24.
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102u) return static_cast<uint16_t>(sign);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, shift = 126u - exponent;
  const uint32_t whole = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  return static_cast<uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1u) != 0) ? 1u : 0u)));
}

struct ToBFloat16At {
  const float* x;
  uint16_t* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = RoundToBFloat16(x[i]); }
};
struct ToFloat16At {
  const float* x;
  uint16_t* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = RoundToFloat16(x[i]); }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ROUNDING_FUNCTORS_H_
