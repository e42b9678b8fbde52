// decayed_adagrad: a = decay a + (1 - decay) g^2;  w -= lr g / (sqrt(a) + epsilon). CPU and CUDA; form as in
// ops/sgd_math.h.
#ifndef WEIR_OPS_DECAYED_ADAGRAD_MATH_H_
#define WEIR_OPS_DECAYED_ADAGRAD_MATH_H_

#include "ops/inline.h"

namespace weir {

struct DecayedAdagradMath {
  static constexpr int kStates = 1;
  static constexpr bool kCounts = false;
  double decay;
  float epsilon;
  struct Step {
    float lr, decay, rest, epsilon;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const {
    return {lr, static_cast<float>(decay), static_cast<float>(1.0 - decay), epsilon};
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment) {
    const float a = c.decay * moment + c.rest * (g * g);
    moment = a;
    w = w - c.lr * g / (SquareRoot(a) + c.epsilon);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_DECAYED_ADAGRAD_MATH_H_
