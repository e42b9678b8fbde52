// Arithmetic of relu, sigmoid, tanh, exp and square, for CPU and CUDA. Gradients are computed from the output where it
// suffices, else from the input.
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

}  // namespace weir

#endif  // WEIR_OPS_ACTIVATION_MATH_H_
