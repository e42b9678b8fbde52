#include "ops/device/host_work.h"

namespace weir {
namespace device {

absl::Status ForLanes(DeviceKernelContext& ctx, const std::function<absl::Status(int)>& fn) {
  std::vector<absl::Status> each(static_cast<size_t>(ctx.lanes));
  const auto run = [&](int64_t lane) { each[static_cast<size_t>(lane)] = fn(static_cast<int>(lane)); };
  if (ctx.step->pool != nullptr && ctx.lanes > 1) {
    ctx.step->pool->ParallelFor(ctx.lanes, run);
  } else {
    for (int lane = 0; lane < ctx.lanes; ++lane) run(lane);
  }
  for (const absl::Status& status : each) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace device
}  // namespace weir
