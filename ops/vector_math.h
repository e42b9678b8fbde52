// exp, log and functions built on them, in float32, from additions, multiplications and divisions only: bits are equal
// on every machine, in vectors and scalars, with every version of the C library. Branch-free, so that loops vectorise.
// Host and device. Errors are at most 2 units in the last place (tests/ops/vector_math_test.cc) unless said otherwise.
#ifndef WEIR_OPS_VECTOR_MATH_H_
#define WEIR_OPS_VECTOR_MATH_H_

#include <cstdint>
#include <cstring>

#include "framework/base/philox.h"

namespace weir {

WEIR_HOST_DEVICE inline int32_t FloatBits(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

WEIR_HOST_DEVICE inline float BitsFloat(int32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// Returns e^x / 2^n for the integer n nearest to x / ln 2, and the low bits of n in *n. x must be in the range of Exp.
WEIR_HOST_DEVICE inline float ExpFraction(float x, uint32_t* n) {
  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits.
  const float shifted = x * 1.44269504088896341f + 12582912.0f;
  *n = static_cast<uint32_t>(FloatBits(shifted)) - 0x4B400000u;
  const float rounded = shifted - 12582912.0f;
  float r = x - rounded * 0.693359375f;
  r = r - rounded * -2.12194440e-4f;
  // Polynomial of Cephes' expf (S. Moshier).
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * (r * r) + r + 1.0f;
}

// 2^n, -126 <= n <= 127.
WEIR_HOST_DEVICE inline float PowerOfTwo(uint32_t n) { return BitsFloat(static_cast<int32_t>((n + 127u) << 23)); }

// e^x. 0 below -87.336 (results that would not be normal numbers), infinity above 88.722, NaN for NaN.
WEIR_HOST_DEVICE inline float Exp(float x) {
  uint32_t n;
  const float fraction = ExpFraction(x, &n);
  // 2^n in two factors: n may be 128.
  const int32_t half = static_cast<int32_t>(n) >> 1;
  const uint32_t rest = n - static_cast<uint32_t>(half);
  float y = fraction * PowerOfTwo(static_cast<uint32_t>(half)) * PowerOfTwo(rest);
  y = x < -87.33654f ? 0.0f : y;
  y = x > 88.72283f ? __builtin_inff() : y;
  return y;
}

// log(2^e m), m in [sqrt(1/2), sqrt(2)).
WEIR_HOST_DEVICE inline float LogOfParts(float e, float m) {
  const float z = m - 1.0f;
  const float zz = z * z;
  // Polynomial of Cephes' logf (S. Moshier).
  float p = 7.0376836292e-2f;
  p = p * z - 1.1514610310e-1f;
  p = p * z + 1.1676998740e-1f;
  p = p * z - 1.2420140846e-1f;
  p = p * z + 1.4249322787e-1f;
  p = p * z - 1.6668057665e-1f;
  p = p * z + 2.0000714765e-1f;
  p = p * z - 2.4999993993e-1f;
  p = p * z + 3.3333331174e-1f;
  p = p * z * zz;
  p = p + e * -2.12194440e-4f;
  p = p - 0.5f * zz;
  return (z + p) + e * 0.693359375f;
}

// Natural logarithm. -infinity for 0, NaN for negative numbers and NaN.
WEIR_HOST_DEVICE inline float Log(float x) {
  // Numbers that are not normal are scaled up first.
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  // scaled = 2^e * m with m in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = static_cast<uint32_t>(FloatBits(scaled)) - 0x3F3504F3u;
  const int32_t exponent = static_cast<int32_t>(bits) >> 23;
  const float m = BitsFloat(static_cast<int32_t>((bits & 0x007FFFFFu) + 0x3F3504F3u));
  const float e = static_cast<float>(exponent) - (tiny ? 23.0f : 0.0f);
  float y = LogOfParts(e, m);
  y = x == 0.0f ? -__builtin_inff() : y;
  y = x == __builtin_inff() ? __builtin_inff() : y;
  y = x >= 0.0f ? y : __builtin_nanf("");
  return y;
}

// log(1 + x) for x >= 0, accurate for small x.
WEIR_HOST_DEVICE inline float Log1p(float x) {
  const float u = 1.0f + x;
  // Rounding error of u with respect to x, to first order.
  const float lost = x - (u - 1.0f);
  const float y = Log(u) + lost / u;
  return x == __builtin_inff() ? x : y;
}

WEIR_HOST_DEVICE inline float Abs(float x) { return x < 0.0f ? -x : x; }

// 1 / (1 + e^-x).
WEIR_HOST_DEVICE inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// log(1 + e^x) without overflow.
WEIR_HOST_DEVICE inline float Softplus(float x) { return (x > 0.0f ? x : 0.0f) + Log1p(Exp(-Abs(x))); }

WEIR_HOST_DEVICE inline float Tanh(float x) {
  const float a = Abs(x);
  const float large = 1.0f - 2.0f / (Exp(2.0f * a) + 1.0f);
  const float z = x * x;
  // Polynomial of Cephes' tanhf (S. Moshier), for |x| < 0.625.
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = p * z * x + x;
  const float signed_large = x < 0.0f ? -large : large;
  return a < 0.625f ? small : signed_large;
}

}  // namespace weir

#endif  // WEIR_OPS_VECTOR_MATH_H_
