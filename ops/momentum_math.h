// momentum: v = mu v + g;  w -= lr v, with Nesterov w -= lr (g + mu v). CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_MOMENTUM_MATH_H_
#define WEIR_OPS_MOMENTUM_MATH_H_

#include "ops/inline.h"

namespace weir {

template <bool kNesterov>
struct MomentumMath {
  static constexpr int kStates = 1;
  static constexpr bool kCounts = false;
  float mu;
  struct Step {
    float lr, mu;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {lr, mu}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& velocity) {
    const float v = c.mu * velocity + g;
    velocity = v;
    w = w - c.lr * (kNesterov ? g + c.mu * v : v);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_MOMENTUM_MATH_H_
