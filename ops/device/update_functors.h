// Functors of dense updates: the rules are those of ops/<optimizer>_math.h.
#ifndef WEIR_OPS_DEVICE_UPDATE_FUNCTORS_H_
#define WEIR_OPS_DEVICE_UPDATE_FUNCTORS_H_

#include <cstdint>

#include "ops/adagrad_math.h"
#include "ops/adam_math.h"
#include "ops/momentum_math.h"
#include "ops/running_average_math.h"
#include "ops/sgd_math.h"

namespace weir {
namespace device {

template <typename Math>
struct UpdateAt {
  typename Math::Step step;
  const float* grad;
  float* param;
  float* state[2];
  WEIR_MATH void operator()(int64_t i) const {
    if constexpr (Math::kStates == 0) Math::Element(step, grad[i], param[i]);
    if constexpr (Math::kStates == 1) Math::Element(step, grad[i], param[i], state[0][i]);
    if constexpr (Math::kStates == 2) Math::Element(step, grad[i], param[i], state[0][i], state[1][i]);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_UPDATE_FUNCTORS_H_
