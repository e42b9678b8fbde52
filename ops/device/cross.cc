// cross and its gradient (ops/cross.cc).
#include "framework/base/status_macros.h"
#include "ops/device/cross_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class CrossKernel : public OpDeviceKernel {
  enum Input { kX0, kY, kX };
  enum Output { kOut };

 public:
  explicit CrossKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x0 = ctx.input(kX0);
    const DeviceTensor& y = ctx.input(kY);
    const DeviceTensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckThere("X0", x0));
    RETURN_IF_ERROR(CheckLike("Y", y, x0));
    RETURN_IF_ERROR(CheckLike("X", x, x0));
    // Out may stand in the place of Y or X.
    CrossAt cross = {.x0 = x0.data<float>(), .y = y.data<float>(), .x = x.data<float>()};
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x0));
    cross.out = ctx.output(kOut).data<float>();
    return ForEach(ctx.runtime(), x0.size(), cross);
  }
};

class CrossGradKernel : public OpDeviceKernel {
  enum Input { kX0, kY, kOutGrad };
  enum Output { kX0Grad, kYGrad, kXGrad };

 public:
  explicit CrossGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x0 = ctx.input(kX0);
    RETURN_IF_ERROR(CheckThere("X0", x0));
    RETURN_IF_ERROR(CheckLike("Y", ctx.input(kY), x0));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(kOutGrad), x0));
    // The gradient of X may stand in the place of Out's.
    CrossGradAt grad = {
        .x0 = x0.data<float>(), .y = ctx.input(kY).data<float>(), .dout = ctx.input(kOutGrad).data<float>()};
    float** const to[] = {&grad.dx0, &grad.dy, &grad.dx};
    for (int slot : {kX0Grad, kYGrad, kXGrad}) {
      if (!ctx.has_output(slot)) continue;
      RETURN_IF_ERROR(ctx.ResizeLike(slot, x0));
      *to[slot] = ctx.output(slot).data<float>();
    }
    return ForEach(ctx.runtime(), x0.size(), grad);
  }
};

REGISTER_DEVICE_KERNEL(cross, MakeDeviceKernel<CrossKernel>);
REGISTER_DEVICE_KERNEL(cross_grad, MakeDeviceKernel<CrossGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
