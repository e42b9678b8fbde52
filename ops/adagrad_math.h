// adagrad: a += g^2;  w -= lr g / (sqrt(a) + epsilon). CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_ADAGRAD_MATH_H_
#define WEIR_OPS_ADAGRAD_MATH_H_

#include "ops/inline.h"

namespace weir {

struct AdagradMath {
  static constexpr int kStates = 1;
  static constexpr bool kCounts = false;
  float epsilon;
  struct Step {
    float lr, epsilon;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {lr, epsilon}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment) {
    const float a = moment + g * g;
    moment = a;
    w = w - c.lr * g / (SquareRoot(a) + c.epsilon);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_ADAGRAD_MATH_H_
