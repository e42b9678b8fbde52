// sum and scale of selected rows: their ids are the host's, their values the device's.
#ifndef WEIR_OPS_DEVICE_ROWS_H_
#define WEIR_OPS_DEVICE_ROWS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/runtime/device_kernel.h"

namespace weir {
namespace device {

// Whether all inputs of the op are selected rows; InvalidArgument when some are dense.
absl::StatusOr<bool> IsOfRows(const KernelInit& init);

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsSum(const KernelInit& init);
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsScale(const KernelInit& init);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ROWS_H_
