// Arithmetic of attention_pairs, for CPU and CUDA: the row [q, k, q - k, q * k] of a query q and an element k, column
// by column.
#ifndef WEIR_OPS_ATTENTION_MATH_H_
#define WEIR_OPS_ATTENTION_MATH_H_

#include "ops/inline.h"

namespace weir {

WEIR_MATH float PairDifference(float q, float k) { return q - k; }
WEIR_MATH float PairProduct(float q, float k) { return q * k; }

// Contribution of one row to the gradient of q, and gradient of k, from the gradients of the row's four parts.
WEIR_MATH float PairGradientOfQuery(float of_q, float of_difference, float of_product, float k) {
  return of_q + of_difference + of_product * k;
}
WEIR_MATH float PairGradientOfElement(float of_k, float of_difference, float of_product, float q) {
  return of_k - of_difference + of_product * q;
}

// Returns the gradient of a score, from its softmax weight w, the gradient dw of w, and the sum of w * dw over the
// sequence.
WEIR_MATH float SoftmaxScoreGradient(float w, float dw, float sum) { return w * (dw - sum); }

}  // namespace weir

#endif  // WEIR_OPS_ATTENTION_MATH_H_
