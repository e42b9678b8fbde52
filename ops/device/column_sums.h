// Sums the columns of each lane's rows, for gradients of biases.
#ifndef WEIR_OPS_DEVICE_COLUMN_SUMS_H_
#define WEIR_OPS_DEVICE_COLUMN_SUMS_H_

#include "framework/device/device_kernel.h"
#include "ops/device/lane_rows.h"

namespace weir {
namespace device {

// Computes out [lanes, n] from x [rows of all lanes, n]. The kernel owns `scratch`.
absl::Status SumColumns(DeviceKernelContext& ctx, const float* x, const LaneRows& rows, int64_t n, DeviceArray* scratch,
                        float* out);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_COLUMN_SUMS_H_
