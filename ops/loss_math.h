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

// Cross entropy of a logit in which examples that are already right count less: the part of label 1 has the factor
// positive * (1 - p)^gamma, that of label 0 negative * p^gamma.
struct FocalLossMath {
  float gamma, positive, negative;
  // -log(p) and -log(1 - p) of p = sigmoid(x).
  WEIR_MATH float MinusLogP(float x) const { return (x > 0.0f ? 0.0f : -x) + Log1pExpMinusAbs(x); }
  WEIR_MATH float MinusLogQ(float x) const { return (x > 0.0f ? x : 0.0f) + Log1pExpMinusAbs(x); }
  WEIR_MATH float Loss(float x, float label) const {
    const float s = MinusLogP(x), t = MinusLogQ(x);
    return label * positive * Exp(-gamma * t) * s + (1.0f - label) * negative * Exp(-gamma * s) * t;
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const {
    const float s = MinusLogP(x), t = MinusLogQ(x), p = Sigmoid(x), q = 1.0f - p;
    const float of_one = -Exp(-gamma * t) * (gamma * p * s + q), of_zero = Exp(-gamma * s) * (gamma * q * t + p);
    return dloss * (label * positive * of_one + (1.0f - label) * negative * of_zero);
  }
};
// Square up to a distance of delta, straight beyond.
struct HuberLossMath {
  float delta;
  WEIR_MATH float Loss(float x, float label) const {
    const float r = x - label, size = Abs(r);
    return size <= delta ? 0.5f * r * r : delta * (size - 0.5f * delta);
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const {
    const float r = x - label;
    return dloss * (r > delta ? delta : r < -delta ? -delta : r);
  }
};
// x is the logarithm of the rate; the label is a count. Without the term of the label alone.
struct PoissonLossMath {
  WEIR_MATH float Loss(float x, float label) const { return Exp(x) - label * x; }
  WEIR_MATH float Dx(float x, float label, float dloss) const { return dloss * (Exp(x) - label); }
};
struct QuantileLossMath {
  float quantile;
  WEIR_MATH float Loss(float x, float label) const {
    const float r = label - x;
    return r > 0.0f ? quantile * r : (quantile - 1.0f) * r;
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const {
    const float r = label - x;
    return dloss * (r > 0.0f ? -quantile : r < 0.0f ? 1.0f - quantile : r);  // 0, or NaN
  }
};
// x is a score; labels of one half and more want margin and more, the others -margin and less.
struct HingeLossMath {
  float margin;
  WEIR_MATH float Loss(float x, float label) const {
    const float lack = margin - (label >= 0.5f ? x : -x);
    return lack <= 0.0f ? 0.0f : lack;  // NaN stays NaN
  }
  WEIR_MATH float Dx(float x, float label, float dloss) const {
    const float side = label >= 0.5f ? 1.0f : -1.0f, lack = margin - side * x;
    return lack > 0.0f ? -side * dloss : lack <= 0.0f ? 0.0f : lack;
  }
};

}  // namespace weir

#endif  // WEIR_OPS_LOSS_MATH_H_
