// Functors of learned_weight, which has one log_variance for all lanes.
#ifndef WEIR_OPS_DEVICE_LEARNED_WEIGHT_FUNCTORS_H_
#define WEIR_OPS_DEVICE_LEARNED_WEIGHT_FUNCTORS_H_

#include <cstdint>

#include "ops/device/lane_rows.h"
#include "ops/learned_weight_math.h"

namespace weir {
namespace device {

struct LearnedWeightAt {
  const float* x;
  const float* log_variance;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    out[i] = WeightedLoss(LearnedWeight(*log_variance), x[i], *log_variance);
  }
};
struct LearnedWeightGradAt {
  const float* log_variance;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { dx[i] = LearnedWeight(*log_variance) * dout[i]; }
};
// The gradient of the logarithm of the variance, one for each lane.
struct LogVarianceGradOf {
  using Sum = float;
  const float* x;
  const float* log_variance;
  const float* dout;
  LaneRows rows;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t lane) const { return rows.count(static_cast<int>(lane)); }
  WEIR_HOST_DEVICE float Term(int64_t lane, int64_t k) const {
    const int64_t i = rows.begin[lane] + k;
    return LogVarianceGrad(LearnedWeight(*log_variance), x[i], dout[i]);
  }
  WEIR_HOST_DEVICE void Store(int64_t lane, float sum) const { out[lane] = sum; }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LEARNED_WEIGHT_FUNCTORS_H_
