// adamw: adam, and in addition w -= lr weight_decay w. CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_ADAMW_MATH_H_
#define WEIR_OPS_ADAMW_MATH_H_

#include "ops/adam_math.h"
#include "ops/inline.h"

namespace weir {

struct AdamWMath {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = true;
  AdamMath adam;
  float weight_decay;
  struct Step {
    AdamMath::Step adam;
    float decay;
  };
  WEIR_MATH static AdamMath::Bias BiasAt(double beta1, double beta2, double t) {
    return AdamMath::BiasAt(beta1, beta2, t);
  }
  WEIR_MATH Step At(float lr, float count) const { return {adam.At(lr, count), lr * weight_decay}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment1, float& moment2) {
    const float decay = c.decay * w;
    AdamMath::Element(c.adam, g, w, moment1, moment2);
    w = w - decay;
  }
};

}  // namespace weir

#endif  // WEIR_OPS_ADAMW_MATH_H_
