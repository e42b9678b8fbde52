// pool2d and its gradient (ops/pool2d.cc). An element gathers its gradient from the windows over it, in their order.
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/picture_operands.h"
#include "ops/device/pool2d_functors.h"
#include "ops/windows.h"

namespace weir {
namespace device {
namespace {

absl::StatusOr<Pool> MakePool(const DeviceTensor& x, const PoolSettings& settings) {
  RETURN_IF_ERROR(CheckRank("X", x, 4));
  ASSIGN_OR_RETURN(const WindowAxes axes, MakePoolAxes(x.dims(), settings));
  return Pool{.height = AxisOf(axes.height), .width = AxisOf(axes.width)};
}

class PoolKernel : public OpDeviceKernel {
 public:
  explicit PoolKernel(PoolSettings settings) : settings_(std::move(settings)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Pool p, MakePool(x, settings_));
    const int64_t channels = x.row_dims()[0];
    RETURN_IF_ERROR(ctx.Resize(0, 4, x.lane_rows(), {channels, p.height.count, p.width.count}));
    const int64_t windows = x.rows() * channels * p.windows();
    float* const out = ctx.output(0).data<float>();
    if (settings_.average)
      return ForEach(ctx.runtime(), windows, PoolAverageAt{.p = p, .x = x.data<float>(), .out = out});
    return ForEach(ctx.runtime(), windows, PoolMaxAt{.p = p, .x = x.data<float>(), .out = out});
  }

 private:
  const PoolSettings settings_;
};

// Inputs X, Out@GRAD; output X@GRAD.
class PoolGradKernel : public OpDeviceKernel {
 public:
  explicit PoolGradKernel(PoolSettings settings) : settings_(std::move(settings)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Pool p, MakePool(x, settings_));
    const int64_t channels = x.row_dims()[0];
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(1), x, {channels, p.height.count, p.width.count}));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    const int64_t windows = x.rows() * channels * p.windows();
    if (!settings_.average) {
      RETURN_IF_ERROR(greatest_.Reserve(ctx.memory(), static_cast<size_t>(windows) * sizeof(int64_t)));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), windows,
                              PoolGreatestAt{.p = p, .x = x.data<float>(), .greatest = greatest_.data<int64_t>()}));
    }
    return ForEach(ctx.runtime(), x.size(),
                   PoolInputAt{.p = p,
                               .greatest = settings_.average ? nullptr : greatest_.data<int64_t>(),
                               .dout = ctx.input(1).data<float>(),
                               .dx = ctx.output(0).data<float>()});
  }

 private:
  const PoolSettings settings_;
  DeviceArray greatest_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakePoolKernel(const KernelInit& init) {
  ASSIGN_OR_RETURN(PoolSettings settings, ReadPoolSettings(init.attrs));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(std::move(settings)));
}

REGISTER_DEVICE_KERNEL(pool2d, MakePoolKernel<PoolKernel>);
REGISTER_DEVICE_KERNEL(pool2d_grad, MakePoolKernel<PoolGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
