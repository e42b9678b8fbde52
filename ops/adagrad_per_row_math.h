// adagrad_per_row: a += mean of g^2 over the row; w -= lr / (sqrt(a) + epsilon) g. CPU only; a rule with one state per
// row (PerRow in ops/update_loops.h).
#ifndef WEIR_OPS_ADAGRAD_PER_ROW_MATH_H_
#define WEIR_OPS_ADAGRAD_PER_ROW_MATH_H_

#include "ops/inline.h"

namespace weir {

struct AdagradPerRowMath {
  static constexpr int kStates = 0;
  static constexpr bool kCounts = false;
  float epsilon;
  struct Step {
    float rate;
  };
  WEIR_MATH Step At(float lr, float& moment, float mean_of_squares) const {
    moment = moment + mean_of_squares;
    return {lr / (SquareRoot(moment) + epsilon)};
  }
  WEIR_MATH static void Element(const Step& c, float g, float& w) { w = w - c.rate * g; }
};

}  // namespace weir

#endif  // WEIR_OPS_ADAGRAD_PER_ROW_MATH_H_
