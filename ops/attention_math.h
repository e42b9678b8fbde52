// Arithmetic of attention_pairs, for CPU and CUDA: of a query q and an element k the row [q, k, q - k, q * k], column
// by column.
#ifndef WEIR_OPS_ATTENTION_MATH_H_
#define WEIR_OPS_ATTENTION_MATH_H_

#include "ops/inline.h"

namespace weir {

WEIR_MATH float PairDifference(float q, float k) { return q - k; }
WEIR_MATH float PairProduct(float q, float k) { return q * k; }

// What one row adds to the gradient of q, and the gradient of k, from those of the row's four parts.
WEIR_MATH float PairGradientOfQuery(float of_q, float of_difference, float of_product, float k) {
  return of_q + of_difference + of_product * k;
}
WEIR_MATH float PairGradientOfElement(float of_k, float of_difference, float of_product, float q) {
  return of_k - of_difference + of_product * q;
}

// Of a score, from its weight w in a softmax, the gradient dw of that, and the sum of w * dw over the sequence.
WEIR_MATH float SoftmaxScoreGradient(float w, float dw, float sum) { return w * (dw - sum); }

}  // namespace weir

#endif  // WEIR_OPS_ATTENTION_MATH_H_
