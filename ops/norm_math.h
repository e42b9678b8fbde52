// Arithmetic of updates that use the norm of a whole parameter, gradient or direction, for CPU and CUDA. Norms are
// doubles, rounded once from an exact sum (framework/base/exact_sum.h), so they do not depend on slices.
#ifndef WEIR_OPS_NORM_MATH_H_
#define WEIR_OPS_NORM_MATH_H_

#include "ops/inline.h"

namespace weir {

// Returns max_norm / max(max_norm, norm), which is 1 for norms up to max_norm.
WEIR_MATH float ClipFactor(double norm, double max_norm) {
  return norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

// lars_momentum: v = mu v + rate (g + decay w);  w -= v. Form as in ops/sgd_math.h, with a Step made from norms.
struct LarsMath {
  static constexpr int kStates = 1;
  static constexpr bool kCounts = false;
  struct Step {
    float mu, rate, decay;
  };
  // Returns lr coeff |w| / (|g| + decay |w| + epsilon); lr if either norm is 0.
  WEIR_MATH static float Rate(float lr, double coeff, double decay, double epsilon, double param_norm,
                              double grad_norm) {
    if (param_norm == 0 || grad_norm == 0) return lr;
    return static_cast<float>(lr * coeff * param_norm / (grad_norm + decay * param_norm + epsilon));
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& velocity) {
    const float v = c.mu * velocity + c.rate * (g + c.decay * w);
    velocity = v;
    w = w - v;
  }
};

// lamb: m and v as Adam's;  r = mhat / (sqrt(vhat) + epsilon) + decay w;  w -= rate r.
struct LambMath {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = true;
  struct Step {
    float beta1, beta2, rest1, rest2, unbias1, unbias2, epsilon, decay, rate;
  };
  double beta1, beta2, epsilon, decay;

  // `rate`: lr |w| / |r|. `count`: number of updates including this one.
  WEIR_MATH Step At(float rate, float count) const {
    return {static_cast<float>(beta1),
            static_cast<float>(beta2),
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2),
            static_cast<float>(1.0 / (1.0 - pow(beta1, static_cast<double>(count)))),
            static_cast<float>(1.0 / (1.0 - pow(beta2, static_cast<double>(count)))),
            static_cast<float>(epsilon),
            static_cast<float>(decay),
            rate};
  }
  WEIR_MATH static float Rate(float lr, double param_norm, double direction_norm) {
    if (param_norm == 0 || direction_norm == 0) return lr;
    return static_cast<float>(lr * param_norm / direction_norm);
  }
  // Updates the moments and returns r.
  WEIR_MATH static float Direction(const Step& c, float g, float w, float& moment1, float& moment2) {
    const float m = c.beta1 * moment1 + c.rest1 * g;
    const float v = c.beta2 * moment2 + c.rest2 * (g * g);
    moment1 = m;
    moment2 = v;
    return m * c.unbias1 / (SquareRoot(v * c.unbias2) + c.epsilon) + c.decay * w;
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment1, float& moment2) {
    w = w - c.rate * Direction(c, g, w, moment1, moment2);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_NORM_MATH_H_
