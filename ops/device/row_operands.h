// Rows of the last dimension [B, .., W] as operands of device kernels.
#ifndef WEIR_OPS_DEVICE_ROW_OPERANDS_H_
#define WEIR_OPS_DEVICE_ROW_OPERANDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_kernel.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {

struct LastRows {
  int64_t count = 0, width = 0;
  // Row dims of a variable with one value for each row.
  Shape of_row;
  // Rows of each lane.
  LaneRows lanes;

  static absl::StatusOr<LastRows> Of(const DeviceTensor& x) {
    RETURN_IF_ERROR(CheckThere("X", x));
    if (x.rank() < 2 || x.row_dims().back() < 1) {
      return absl::InvalidArgumentError(absl::StrCat("X must be [B, .., W], got ", ShapeString(x.dims())));
    }
    LastRows rows = {.width = x.row_dims().back(), .of_row = Shape(x.row_dims().begin(), x.row_dims().end())};
    rows.of_row.back() = 1;
    rows.count = x.size() / rows.width;
    rows.lanes = RowsOf(x);
    for (int l = 1; l <= rows.lanes.lanes; ++l) rows.lanes.begin[l] *= x.width() / rows.width;
    return rows;
  }

  // A gradient [n] in each lane.
  absl::Status ResizeSums(DeviceKernelContext& ctx, int slot, int64_t n) const {
    return ctx.Resize(slot, 1, std::vector<int64_t>(static_cast<size_t>(lanes.lanes), n), {});
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ROW_OPERANDS_H_
