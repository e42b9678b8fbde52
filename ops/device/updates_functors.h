// Functors of dense updates: the rules are those of ops/<optimizer>_math.h.
#ifndef WEIR_OPS_DEVICE_UPDATES_FUNCTORS_H_
#define WEIR_OPS_DEVICE_UPDATES_FUNCTORS_H_

#include <cstdint>

#include "ops/adagrad_math.h"
#include "ops/adam_math.h"
#include "ops/device/fours.h"
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
  bool Fours() const {
    bool all = InFours(grad, param);
    for (int s = 0; s < Math::kStates; ++s) all = all && InFours(state[s]);
    return all;
  }
  WEIR_MATH void Four(int64_t i) const {
    const Float4 g = LoadFour(grad, i);
    Float4 p = LoadFour(param, i), s[2] = {};
    for (int k = 0; k < Math::kStates; ++k) s[k] = LoadFour(state[k], i);
    for (int e = 0; e < 4; ++e) {
      if constexpr (Math::kStates == 0) Math::Element(step, g.v[e], p.v[e]);
      if constexpr (Math::kStates == 1) Math::Element(step, g.v[e], p.v[e], s[0].v[e]);
      if constexpr (Math::kStates == 2) Math::Element(step, g.v[e], p.v[e], s[0].v[e], s[1].v[e]);
    }
    StoreFour(param, i, p);
    for (int k = 0; k < Math::kStates; ++k) StoreFour(state[k], i, s[k]);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_UPDATES_FUNCTORS_H_
