#include "ops/device/column_sums.h"

#include <algorithm>

#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"

namespace weir {
namespace device {

absl::Status SumColumns(DeviceKernelContext& ctx, const float* x, const LaneRows& rows, int64_t n, DeviceArray* scratch,
                        float* out) {
  int64_t runs = 1;
  for (int l = 0; l < rows.lanes; ++l) runs = std::max(runs, Runs(rows.count(l)));
  RETURN_IF_ERROR(scratch->Reserve(ctx.memory(), static_cast<size_t>(rows.lanes * runs * n) * sizeof(float)));
  float* const partial = scratch->data<float>();
  RETURN_IF_ERROR(ForEach(ctx.runtime(), rows.lanes * runs * n,
                          ColumnRunAt{.x = x, .n = n, .rows = rows, .runs = runs, .partial = partial}));
  return Reduce(ctx.runtime(), rows.lanes * n,
                ColumnSum{.partial = partial, .n = n, .rows = rows, .runs = runs, .out = out});
}

}  // namespace device
}  // namespace weir
