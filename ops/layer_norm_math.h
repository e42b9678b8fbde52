// Arithmetic of layer_norm, for CPU and CUDA.
#ifndef WEIR_OPS_LAYER_NORM_MATH_H_
#define WEIR_OPS_LAYER_NORM_MATH_H_

#include "ops/inline.h"

namespace weir {

WEIR_MATH float InverseOfDeviation(float variance, float epsilon) { return 1.0f / SquareRoot(variance + epsilon); }

WEIR_MATH float Normalised(float x, float mean, float inverse) { return (x - mean) * inverse; }

// Returns dx from dnorm, the gradient of the normalised value `norm`, and the means over the row of dnorm and of
// dnorm * norm.
WEIR_MATH float NormalisedInputGradient(float dnorm, float norm, float inverse, float mean_of_dnorm,
                                        float mean_of_products) {
  return inverse * (dnorm - mean_of_dnorm - norm * mean_of_products);
}

}  // namespace weir

#endif  // WEIR_OPS_LAYER_NORM_MATH_H_
