// Positions of the lanes of a packed variable, as an argument of a kernel.
#ifndef WEIR_OPS_DEVICE_LANE_ROWS_H_
#define WEIR_OPS_DEVICE_LANE_ROWS_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {
namespace device {

// Equals kMostDeviceLanes of framework/device/device_kernel.h.
inline constexpr int kMostLanes = 64;

// Lane l has the rows, or elements, [begin[l], begin[l + 1]).
struct LaneRows {
  int lanes = 1;
  int64_t begin[kMostLanes + 1] = {};

  WEIR_HOST_DEVICE int LaneOf(int64_t at) const {
    int lane = 0;
    while (lane + 1 < lanes && at >= begin[lane + 1]) ++lane;
    return lane;
  }
  WEIR_HOST_DEVICE int64_t count(int lane) const { return begin[lane + 1] - begin[lane]; }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LANE_ROWS_H_
