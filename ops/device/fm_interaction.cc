// fm_interaction and its gradient (ops/fm_interaction.cc).
#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/loss_functors.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class FmInteractionKernel : public OpDeviceKernel {
 public:
  explicit FmInteractionKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, 3));
    const int64_t slots = x.row_dims()[0], width = x.row_dims()[1];
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {1}));
    RETURN_IF_ERROR(ctx.Resize(1, 2, x.lane_rows(), {width}));
    RETURN_IF_ERROR(squares_.Reserve(ctx.memory(), static_cast<size_t>(x.rows() * width) * sizeof(float)));
    float* const sum = ctx.output(1).data<float>();
    RETURN_IF_ERROR(ForEach(
        ctx.runtime(), x.rows() * width,
        FmSumAt{.x = x.data<float>(), .slots = slots, .width = width, .sum = sum, .squares = squares_.data<float>()}));
    return ForEach(
        ctx.runtime(), x.rows(),
        FmOutAt{.sum = sum, .squares = squares_.data<float>(), .width = width, .out = ctx.output(0).data<float>()});
  }

 private:
  DeviceArray squares_;
};

class FmInteractionGradKernel : public OpDeviceKernel {
 public:
  explicit FmInteractionGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, 3));
    const int64_t slots = x.row_dims()[0], width = x.row_dims()[1];
    RETURN_IF_ERROR(CheckRows("Sum", ctx.input(1), x, {width}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(2), x, {1}));
    const float* const xs = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), ctx.output(0).size(),
                   FmGradAt{.x = xs,
                            .sum = ctx.input(1).data<float>(),
                            .dout = ctx.input(2).data<float>(),
                            .slots = slots,
                            .width = width,
                            .dx = ctx.output(0).data<float>()});
  }
};

REGISTER_DEVICE_KERNEL(fm_interaction, MakeDeviceKernel<FmInteractionKernel>);
REGISTER_DEVICE_KERNEL(fm_interaction_grad, MakeDeviceKernel<FmInteractionGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
