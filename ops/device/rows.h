// Kernels of sum and scale for selected rows, whose ids are on the host and whose values are on the device.
#ifndef WEIR_OPS_DEVICE_ROWS_H_
#define WEIR_OPS_DEVICE_ROWS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"

namespace weir {
namespace device {

// Returns true if all inputs of the op are selected rows; InvalidArgument if only some are.
absl::StatusOr<bool> IsOfRows(const KernelInit& init);

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsSum(const KernelInit& init);
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsScale(const KernelInit& init);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ROWS_H_
