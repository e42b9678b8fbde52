// Arithmetic of losses of one number per example, for CPU and CUDA.
#ifndef WEIR_OPS_LOSS_MATH_H_
#define WEIR_OPS_LOSS_MATH_H_

#include "ops/inline.h"
#include "ops/vector_math.h"

namespace weir {

// Loss of x against a label, and its derivative by x times dloss.
struct SigmoidCrossEntropyMath {
  // No logit overflows, and a small loss keeps its digits.
  WEIR_MATH float Loss(float x, float label) const {
    const float linear = (x > 0.0f ? x : 0.0f) - x * label;
    return linear + Log1p(Exp(-Abs(x)));
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
