// Arithmetic of losses of one number per example, for CPU and CUDA.
#ifndef WEIR_OPS_LOSS_MATH_H_
#define WEIR_OPS_LOSS_MATH_H_

#include <cstdint>

#include "ops/inline.h"
#include "ops/vector_math.h"

namespace weir {

// log(1 + e^-|x|): the bits of Log1p(Exp(-Abs(x))), which are also its definition. Exp and Log stand here for the arguments that they
// get, a number from -infinity to 0 and one from 1 to 2, or NaN; compilers make twice the instructions of the whole ones.
WEIR_MATH float Log1pExpMinusAbs(float x) {
  const float t = -Abs(x);
  const float shifted = t * 1.44269504088896341f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = t - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // n is at least -126, so that 2^n is one factor.
  const uint32_t bits = static_cast<uint32_t>(FloatBits(shifted)) - 0x4B400000u;
  const float scaled = p * BitsFloat(static_cast<int32_t>((bits + 127u) << 23));
  const float e = t < -87.33654f ? 0.0f : scaled;

  const float u = 1.0f + e;
  // What rounding took from e, to first order.
  const float lost = e - (u - 1.0f);
  // u, or half of it: in [sqrt(1/2), sqrt(2)).
  const bool halved = u >= 1.41421354f;
  const float z = (halved ? 0.5f * u : u) - 1.0f;
  const float zz = z * z;
  p = 7.0376836292e-2f;
  p = p * z - 1.1514610310e-1f;
  p = p * z + 1.1676998740e-1f;
  p = p * z - 1.2420140846e-1f;
  p = p * z + 1.4249322787e-1f;
  p = p * z - 1.6668057665e-1f;
  p = p * z + 2.0000714765e-1f;
  p = p * z - 2.4999993993e-1f;
  p = p * z + 3.3333331174e-1f;
  p = p * z * zz;
  p = halved ? p + -2.12194440e-4f : p;
  p = p - 0.5f * zz;
  float y = z + p;
  y = halved ? y + 0.693359375f : y;
  return y + lost / u;
}

// Loss of x against a label, and its derivative by x times dloss.
struct SigmoidCrossEntropyMath {
  // No logit overflows, and a small loss keeps its digits.
  WEIR_MATH float Loss(float x, float label) const {
    const float linear = (x > 0.0f ? x : 0.0f) - x * label;
    return linear + Log1pExpMinusAbs(x);
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const { return dloss * (Sigmoid(x) - label); }
};
struct SquareErrorMath {
  WEIR_MATH float Loss(float x, float label) const { return (x - label) * (x - label); }
  WEIR_MATH float Dx(float x, float label, float dloss) const { return dloss * (2.0f * (x - label)); }
};
// x is a probability.
struct LogLossMath {
  float epsilon;
  WEIR_MATH float Loss(float x, float label) const {
    return -label * Log(x + epsilon) - (1.0f - label) * Log(1.0f - x + epsilon);
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const {
    return dloss * ((1.0f - label) / (1.0f - x + epsilon) - label / (x + epsilon));
  }
};

}  // namespace weir

#endif  // WEIR_OPS_LOSS_MATH_H_
