// Arithmetic of losses of one number per example, for CPU and CUDA.
#ifndef WEIR_OPS_LOSS_MATH_H_
#define WEIR_OPS_LOSS_MATH_H_

#include <cstdint>

#include "ops/inline.h"
#include "ops/vector_math.h"

namespace weir {

// log(1 + e^-|x|), with the bits of Log1p(Exp(-Abs(x))), its definition. Omits the cases of Exp and Log that cannot
// occur here (arguments of Exp above 0; arguments of Log outside [1, 2] other than NaN), which would double the number
// of instructions.
WEIR_MATH float Log1pExpMinusAbs(float x) {
  const float t = -Abs(x);
  uint32_t n;
  const float fraction = ExpFraction(t, &n);
  // n is at least -126, so that 2^n is one factor.
  const float e = t < -87.33654f ? 0.0f : fraction * PowerOfTwo(n);
  const float u = 1.0f + e;
  // Rounding error of u with respect to e, to first order.
  const float lost = e - (u - 1.0f);
  const bool halved = u >= 1.41421354f;
  return LogOfParts(halved ? 1.0f : 0.0f, halved ? 0.5f * u : u) + lost / u;
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
