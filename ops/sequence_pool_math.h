// Arithmetic of sequence_pool, for CPU and CUDA.
#ifndef WEIR_OPS_SEQUENCE_POOL_MATH_H_
#define WEIR_OPS_SEQUENCE_POOL_MATH_H_

#include "ops/inline.h"

namespace weir {

enum class SequencePooling { kSum, kMean, kSqrtN, kMax, kFirst, kLast };

// Returns the divisor of the sum of a sequence of `length` elements, at least one.
WEIR_MATH float SequenceDivisor(SequencePooling pooling, float length) {
  return pooling == SequencePooling::kMean ? length : pooling == SequencePooling::kSqrtN ? SquareRoot(length) : 1.0f;
}

// Returns the larger of the elements so far and x. A NaN is skipped unless it comes first.
WEIR_MATH float LargerOf(float largest, float x) { return x > largest ? x : largest; }

// Gradient of an element x, and the rest of the gradient for later elements: the first largest element gets all of it.
WEIR_MATH float GradientOfLargest(float x, float largest, float left) { return x == largest ? left : 0.0f; }
WEIR_MATH float LeftOfGradient(float x, float largest, float left) { return x == largest ? 0.0f : left; }

}  // namespace weir

#endif  // WEIR_OPS_SEQUENCE_POOL_MATH_H_
