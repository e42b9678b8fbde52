// Arithmetic on averaged gradients before the update. CPU and CUDA.
#ifndef WEIR_OPS_GRADIENT_MATH_H_
#define WEIR_OPS_GRADIENT_MATH_H_

#include "ops/inline.h"

namespace weir {

// NaN stays NaN.
WEIR_MATH float ClipToRange(float g, float min, float max) {
  const float above = g < min ? min : g;
  return above > max ? max : above;
}

// Returns -1 or 1, or x itself for 0 and NaN.
WEIR_MATH float SignOf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

// Returns g + l1 sign(w) + l2 w.
WEIR_MATH float AddDecay(float g, float w, float l1, float l2) { return g + (l1 * SignOf(w) + l2 * w); }

}  // namespace weir

#endif  // WEIR_OPS_GRADIENT_MATH_H_
