// Checks of the operands of device kernels, made before any launch.
#ifndef WEIR_OPS_DEVICE_OPERANDS_H_
#define WEIR_OPS_DEVICE_OPERANDS_H_

#include <string_view>

#include "absl/status/status.h"
#include "framework/device/device_kernel.h"
#include "ops/device/lane_rows.h"

namespace weir {
namespace device {

// Returns InvalidArgument if the tensor has no value, another type or gaps between lanes.
absl::Status CheckThere(std::string_view slot, const DeviceTensor& tensor, DType dtype = v1::FLOAT32);
absl::Status CheckRank(std::string_view slot, const DeviceTensor& tensor, int rank);
// Checks for equal lanes and dims as `like`.
absl::Status CheckLike(std::string_view slot, const DeviceTensor& tensor, const DeviceTensor& like);
// Checks for equal rows as `like`, with row dims `row_dims`.
absl::Status CheckRows(std::string_view slot, const DeviceTensor& tensor, const DeviceTensor& like,
                       absl::Span<const int64_t> row_dims);
// Checks for one value for all lanes, of these dims.
absl::Status CheckShared(std::string_view slot, const DeviceTensor& tensor, absl::Span<const int64_t> dims);

LaneRows RowsOf(const DeviceTensor& tensor);
LaneRows ElementsOf(const DeviceTensor& tensor);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_OPERANDS_H_
