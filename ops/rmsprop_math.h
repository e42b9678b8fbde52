// rmsprop: r = rho r + (1 - rho) g^2;  v = mu v + lr g / sqrt(r + epsilon);  w -= v
// centered: besides s = rho s + (1 - rho) g, and sqrt(r - s^2 + epsilon). CPU and CUDA; form as in ops/sgd_math.h.
#ifndef WEIR_OPS_RMSPROP_MATH_H_
#define WEIR_OPS_RMSPROP_MATH_H_

#include "ops/inline.h"

namespace weir {

// Settings of both forms.
struct RmspropSettings {
  double rho;
  float mu, epsilon;
  struct Step {
    float lr, rho, rest, mu, epsilon;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const {
    return {lr, static_cast<float>(rho), static_cast<float>(1.0 - rho), mu, epsilon};
  }
};

struct RmspropMath : RmspropSettings {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = false;
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& mean_square, float& moment) {
    const float r = c.rho * mean_square + c.rest * (g * g);
    const float v = c.mu * moment + c.lr * g / SquareRoot(r + c.epsilon);
    mean_square = r;
    moment = v;
    w = w - v;
  }
};

struct CenteredRmspropMath : RmspropSettings {
  static constexpr int kStates = 3;
  static constexpr bool kCounts = false;
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& mean_square, float& mean_grad, float& moment) {
    const float r = c.rho * mean_square + c.rest * (g * g);
    const float s = c.rho * mean_grad + c.rest * g;
    // Variance; rounding can make it negative if gradients hardly differ.
    const float difference = r - s * s;
    const float variance = difference < 0 ? 0.0f : difference;
    const float v = c.mu * moment + c.lr * g / SquareRoot(variance + c.epsilon);
    mean_square = r;
    mean_grad = s;
    moment = v;
    w = w - v;
  }
};

}  // namespace weir

#endif  // WEIR_OPS_RMSPROP_MATH_H_
