// Arithmetic of learned_weight, for CPU and CUDA.
#ifndef WEIR_OPS_LEARNED_WEIGHT_MATH_H_
#define WEIR_OPS_LEARNED_WEIGHT_MATH_H_

#include "ops/vector_math.h"

namespace weir {

// The factor of a loss, from the logarithm of its variance.
WEIR_HOST_DEVICE inline float LearnedWeight(float log_variance) { return Exp(-log_variance); }

// The loss that is minimised.
WEIR_HOST_DEVICE inline float WeightedLoss(float weight, float loss, float log_variance) {
  return weight * loss + 0.5f * log_variance;
}

// Returns what a sample gives to the gradient of the logarithm of the variance.
WEIR_HOST_DEVICE inline float LogVarianceGrad(float weight, float loss, float dout) {
  return dout * (0.5f - weight * loss);
}

}  // namespace weir

#endif  // WEIR_OPS_LEARNED_WEIGHT_MATH_H_
