// adamax: m = b1 m + (1 - b1) g;  u = max(b2 u + epsilon, |g|);  w -= lr / (1 - b1^t) * m / u
// t counts the updates of the parameter, or of the row. CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_ADAMAX_MATH_H_
#define WEIR_OPS_ADAMAX_MATH_H_

#include "ops/adam_math.h"
#include "ops/inline.h"

namespace weir {

struct AdamaxMath {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = true;
  // Bias with rate = 1 / (1 - b1^t); root is not used.
  WEIR_MATH static AdamMath::Bias BiasAt(double beta1, double /*beta2*/, double t) {
    return {static_cast<float>(1.0 / (1.0 - pow(beta1, t))), 1};
  }

  double beta1, beta2;
  float epsilon;
  const AdamMath::Bias* biases = nullptr;  // see AdamMath::biases
  int known = 0;

  struct Step {
    float beta1, beta2, rest1, lr, epsilon;
  };
  WEIR_MATH Step At(float lr, float count) const {
    const AdamMath::Bias bias = AdamMath::IsKnown(count, known) ? biases[static_cast<int>(count)]
                                                                : BiasAt(beta1, beta2, static_cast<double>(count));
    return {static_cast<float>(beta1), static_cast<float>(beta2), static_cast<float>(1.0 - beta1), lr * bias.rate,
            epsilon};
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment, float& inf_norm) {
    const float m = c.beta1 * moment + c.rest1 * g;
    const float faded = c.beta2 * inf_norm + c.epsilon;
    const float size = Absolute(g);
    const float u = faded > size ? faded : size;
    moment = m;
    inf_norm = u;
    w = w - c.lr * m / u;
  }
};

}  // namespace weir

#endif  // WEIR_OPS_ADAMAX_MATH_H_
