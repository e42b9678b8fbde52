// sgd: w -= lr * g. CPU and CUDA.
//
// Defines the form of every <optimizer>_math.h. kStates: floats of state per element. kCounts: true if the rule uses
// the number of updates of a parameter (dense) or row. Step: values common to all elements of one update; At(lr, count)
// computes it, where count is the number of updates including this one. Element: updates one element by its gradient g.
#ifndef WEIR_OPS_SGD_MATH_H_
#define WEIR_OPS_SGD_MATH_H_

#include "ops/inline.h"

namespace weir {

struct SgdMath {
  static constexpr int kStates = 0;
  static constexpr bool kCounts = false;
  struct Step {
    float lr;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {lr}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w) { w = w - c.lr * g; }
};

}  // namespace weir

#endif  // WEIR_OPS_SGD_MATH_H_
