// Arithmetic of cross, for CPU and CUDA.
#ifndef WEIR_OPS_CROSS_MATH_H_
#define WEIR_OPS_CROSS_MATH_H_

#include "ops/inline.h"

namespace weir {

// The derivatives by x0 and y are dout * y and dout * x0, that by x is dout.
WEIR_MATH float Cross(float x0, float y, float x) { return x0 * y + x; }

}  // namespace weir

#endif  // WEIR_OPS_CROSS_MATH_H_
