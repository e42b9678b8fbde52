// FixedSum (ops/fixed_sum.h) as an object, for arithmetic that is given its sum (ops/row_loss_math.h).
#ifndef WEIR_OPS_ORDERED_SUM_H_
#define WEIR_OPS_ORDERED_SUM_H_

#include <cstdint>

#include "ops/fixed_sum.h"

namespace weir {

struct OrderedSum {
  template <typename Term>
  inline __attribute__((always_inline)) float operator()(int64_t n, const Term& term) const {
    return FixedSum(n, term);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_ORDERED_SUM_H_
