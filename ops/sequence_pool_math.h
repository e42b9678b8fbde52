// Arithmetic of sequence_pool, for CPU and CUDA.
#ifndef WEIR_OPS_SEQUENCE_POOL_MATH_H_
#define WEIR_OPS_SEQUENCE_POOL_MATH_H_

#include "ops/inline.h"

namespace weir {

enum class SequencePooling { kSum, kMean, kSqrtN, kMax, kFirst, kLast };

// What the sum of a sequence of so many elements, at least one, is divided by.
WEIR_MATH float SequenceDivisor(SequencePooling pooling, float length) {
  return pooling == SequencePooling::kMean ? length : pooling == SequencePooling::kSqrtN ? SquareRoot(length) : 1.0f;
}

// The largest of the elements so far, and x. NaN is passed over unless it comes first.
WEIR_MATH float LargerOf(float largest, float x) { return x > largest ? x : largest; }

// The gradient of an element x, and what is left of it for those behind: all goes to the first that is the largest.
WEIR_MATH float GradientOfLargest(float x, float largest, float left) { return x == largest ? left : 0.0f; }
WEIR_MATH float LeftOfGradient(float x, float largest, float left) { return x == largest ? 0.0f : left; }

}  // namespace weir

#endif  // WEIR_OPS_SEQUENCE_POOL_MATH_H_
