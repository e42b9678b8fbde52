// running_average: w = (1 - rate) w + rate g, where rate is 1 - momentum. CPU and CUDA. Form as in ops/sgd_math.h.
#ifndef WEIR_OPS_RUNNING_AVERAGE_MATH_H_
#define WEIR_OPS_RUNNING_AVERAGE_MATH_H_

#include "ops/inline.h"

namespace weir {

struct RunningAverageMath {
  static constexpr int kStates = 0;
  static constexpr bool kCounts = false;
  struct Step {
    float keep;
    float rate;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {1.0f - lr, lr}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w) { w = c.keep * w + c.rate * g; }
};

}  // namespace weir

#endif  // WEIR_OPS_RUNNING_AVERAGE_MATH_H_
