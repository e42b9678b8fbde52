// ftrl (proximal): n' = n + g^2;  z += g - (n'^-p - n^-p) / lr * w,  p = lr_power;
//                  w = 0 if |z| <= l1, else (sign(z) l1 - z) / (n'^-p / lr + 2 l2)
// With lr 0, which a schedule may reach and for which the formula is undefined, nothing changes. CPU and CUDA; form as
// in ops/sgd_math.h.
#ifndef WEIR_OPS_FTRL_MATH_H_
#define WEIR_OPS_FTRL_MATH_H_

#include "ops/inline.h"

namespace weir {

// kSquareRoot: lr_power is -0.5. Other powers are computed in double.
template <bool kSquareRoot>
struct FtrlMath {
  static constexpr int kStates = 2;
  static constexpr bool kCounts = false;
  float l1, l2;
  double lr_power;
  struct Step {
    float lr, l1, twice_l2;
    double power;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {lr, l1, 2 * l2, -lr_power}; }
  WEIR_MATH static float Power(const Step& c, float n) {
    if constexpr (kSquareRoot) return SquareRoot(n);
    return static_cast<float>(pow(static_cast<double>(n), c.power));
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& squared, float& linear) {
    const float n = squared + g * g;
    const float root = Power(c, n);
    const float z = linear + (g - (root - Power(c, squared)) / c.lr * w);
    const float pull = (z < 0 ? -c.l1 : c.l1) - z;
    const float value = pull / (root / c.lr + c.twice_l2);
    const bool moves = c.lr != 0;
    const float kept = Absolute(z) <= c.l1 ? 0.0f : value;
    squared = moves ? n : squared;
    linear = moves ? z : linear;
    w = moves ? kept : w;
  }
};

}  // namespace weir

#endif  // WEIR_OPS_FTRL_MATH_H_
