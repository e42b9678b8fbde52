#include "trainer/verify/two_costs.h"

#include <algorithm>

namespace weir {

TwoCosts SolveTwoCosts(double t1, double t2, double once, double often1, double often2) {
  TwoCosts costs;
  if (once + often1 <= 0) return costs;
  if (once <= 0) return {.once = 0, .often = t1 / often1};
  if (often1 <= 0) return {.once = t1 / once, .often = 0};
  if (often2 < 1.05 * often1) {
    costs.often = costs.once = t1 / (once + often1);
    return costs;
  }
  costs.often = std::clamp((t2 - t1) / (often2 - often1), 0.0, t1 / often1);
  // t1 / often1 * often1 can round to more than t1.
  costs.once = std::max(0.0, (t1 - costs.often * often1) / once);
  return costs;
}

}  // namespace weir
