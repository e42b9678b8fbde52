// Arithmetic of relu, sigmoid, tanh, exp, square, prelu and dice, for CPU and CUDA. Gradients are computed from the
// output where it suffices, else from the input.
#ifndef WEIR_OPS_ACTIVATION_MATH_H_
#define WEIR_OPS_ACTIVATION_MATH_H_

#include "ops/vector_math.h"

namespace weir {

// NaN stays NaN.
WEIR_HOST_DEVICE inline float Relu(float x) { return x < 0.0f ? 0.0f : x; }
WEIR_HOST_DEVICE inline float Square(float x) { return x * x; }

// dx from y and dy. The gradient of relu at 0 is 0.
WEIR_HOST_DEVICE inline float ReluGrad(float y, float dy) { return y > 0.0f ? dy : 0.0f; }
WEIR_HOST_DEVICE inline float SigmoidGrad(float y, float dy) { return dy * y * (1.0f - y); }
WEIR_HOST_DEVICE inline float TanhGrad(float y, float dy) { return dy * (1.0f - y * y); }
WEIR_HOST_DEVICE inline float ExpGrad(float y, float dy) { return dy * y; }
// dx from x and dy.
WEIR_HOST_DEVICE inline float SquareGrad(float x, float dy) { return 2.0f * x * dy; }

// The slope counts at 0, too.
WEIR_HOST_DEVICE inline float Prelu(float x, float slope) { return x > 0.0f ? x : slope * x; }
WEIR_HOST_DEVICE inline float PreluGrad(float x, float slope, float dy) { return x > 0.0f ? dy : slope * dy; }
// Returns the part of the slope's gradient that one value gives.
WEIR_HOST_DEVICE inline float PreluSlopeGrad(float x, float dy) { return x > 0.0f ? 0.0f : dy * x; }

// p * x + (1 - p) * slope * x, p = sigmoid(norm).
WEIR_HOST_DEVICE inline float Dice(float x, float norm, float slope) {
  const float p = Sigmoid(norm);
  return x * (p + (1.0f - p) * slope);
}
// dx as if norm did not depend on x, the gradient of norm, and the part of the slope's gradient that one value gives.
WEIR_HOST_DEVICE inline float DiceDirectGrad(float norm, float slope, float dy) {
  const float p = Sigmoid(norm);
  return dy * (p + (1.0f - p) * slope);
}
WEIR_HOST_DEVICE inline float DiceNormGrad(float x, float norm, float slope, float dy) {
  const float p = Sigmoid(norm);
  return dy * x * (1.0f - slope) * (p * (1.0f - p));
}
WEIR_HOST_DEVICE inline float DiceSlopeGrad(float x, float norm, float dy) { return dy * x * (1.0f - Sigmoid(norm)); }

}  // namespace weir

#endif  // WEIR_OPS_ACTIVATION_MATH_H_
