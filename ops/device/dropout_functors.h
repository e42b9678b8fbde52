// Functor of dropout in training: out = x * mask, mask = 0 or 1 / (1 - rate).
#ifndef WEIR_OPS_DEVICE_DROPOUT_FUNCTORS_H_
#define WEIR_OPS_DEVICE_DROPOUT_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/device/fours.h"
#include "ops/device/lane_rows.h"

namespace weir {
namespace device {

// Draws as ops/dropout.cc does: element e of a lane is word e mod 4 at counter e / 4.
struct DropoutAt {
  const float* x;
  LaneRows elements;
  uint64_t key;
  uint64_t counter_high;  // of the first lane; lanes count on
  float rate, keep;       // keep = 1 / (1 - rate)
  float* mask;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int lane = elements.LaneOf(i);
    const int64_t e = i - elements.begin[lane];
    const PhiloxBlock random = Philox(key, static_cast<uint64_t>(e / 4), counter_high + static_cast<uint64_t>(lane));
    const float m = UniformFloat(random.v[e % 4]) < rate ? 0.0f : keep;
    out[i] = x[i] * m;
    mask[i] = m;
  }
  // Returns true if elements may be taken in fours: each four are then the four words of one draw.
  bool Fours() const {
    bool all = InFours(x, mask, out);
    for (int l = 0; l < elements.lanes; ++l) all = all && elements.begin[l] % 4 == 0;
    return all;
  }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const int lane = elements.LaneOf(4 * i);
    const PhiloxBlock random =
        Philox(key, static_cast<uint64_t>(i - elements.begin[lane] / 4), counter_high + static_cast<uint64_t>(lane));
    Float4 four = LoadFour(x, i), masks;
    for (int k = 0; k < 4; ++k) {
      masks.v[k] = UniformFloat(random.v[k]) < rate ? 0.0f : keep;
      four.v[k] = four.v[k] * masks.v[k];
    }
    StoreFour(out, i, four);
    StoreFour(mask, i, masks);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_DROPOUT_FUNCTORS_H_
