// adam: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
//       w -= lr r / (1 - b1^t) * m / (sqrt(v) + epsilon r),  r = sqrt(1 - b2^t)
// t counts the updates of the parameter, or of the row; where replicas are averaged (distribute.local_sgd) it is the
// mean of theirs, and need not be whole. CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_ADAM_MATH_H_
#define WEIR_OPS_ADAM_MATH_H_

#include "ops/inline.h"

namespace weir {

struct AdamMath {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = true;

  // Factors that depend only on t; powers are computed in double.
  struct Bias {
    float rate;  // r / (1 - b1^t)
    float root;  // r
  };
  WEIR_MATH static Bias BiasAt(double beta1, double beta2, double t) {
    const double root = sqrt(1.0 - pow(beta2, t));
    return {static_cast<float>(root / (1.0 - pow(beta1, t))), static_cast<float>(root)};
  }

  // Returns whether the table of `known` entries has an entry for the count.
  WEIR_MATH static bool IsKnown(float count, int known) {
    return count >= 1 && count < static_cast<float>(known) && static_cast<float>(static_cast<int>(count)) == count;
  }

  double beta1, beta2;
  float epsilon;
  // BiasAt(beta1, beta2, i) for i in [1, known): saves two powers per row. May be empty (ops/known_biases.h).
  const Bias* biases = nullptr;
  int known = 0;

  struct Step {
    float beta1, beta2, rest1, rest2, lr, epsilon;
  };
  WEIR_MATH Step At(float lr, float count) const {
    const Bias bias =
        IsKnown(count, known) ? biases[static_cast<int>(count)] : BiasAt(beta1, beta2, static_cast<double>(count));
    return {static_cast<float>(beta1),
            static_cast<float>(beta2),
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2),
            lr * bias.rate,
            epsilon * bias.root};
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& moment1, float& moment2) {
    const float m = c.beta1 * moment1 + c.rest1 * g;
    const float v = c.beta2 * moment2 + c.rest2 * (g * g);
    moment1 = m;
    moment2 = v;
    w = w - c.lr * m / (SquareRoot(v) + c.epsilon);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_ADAM_MATH_H_
