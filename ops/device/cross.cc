// cross and its gradient (ops/cross.cc).
#include "framework/base/status_macros.h"
#include "ops/device/cross_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class CrossKernel : public OpDeviceKernel {
 public:
  explicit CrossKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x0 = ctx.input(0);
    const DeviceTensor& y = ctx.input(1);
    const DeviceTensor& x = ctx.input(2);
    RETURN_IF_ERROR(CheckThere("X0", x0));
    RETURN_IF_ERROR(CheckLike("Y", y, x0));
    RETURN_IF_ERROR(CheckLike("X", x, x0));
    // Out may stand in the place of Y or X.
    CrossAt cross = {.x0 = x0.data<float>(), .y = y.data<float>(), .x = x.data<float>()};
    RETURN_IF_ERROR(ctx.ResizeLike(0, x0));
    cross.out = ctx.output(0).data<float>();
    return ForEach(ctx.runtime(), x0.size(), cross);
  }
};

// Inputs X0, Y, Out@GRAD; outputs X0@GRAD?, Y@GRAD?, X@GRAD?.
class CrossGradKernel : public OpDeviceKernel {
 public:
  explicit CrossGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x0 = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X0", x0));
    RETURN_IF_ERROR(CheckLike("Y", ctx.input(1), x0));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(2), x0));
    // The gradient of X may stand in the place of Out's.
    CrossGradAt grad = {.x0 = x0.data<float>(), .y = ctx.input(1).data<float>(), .dout = ctx.input(2).data<float>()};
    float** const to[] = {&grad.dx0, &grad.dy, &grad.dx};
    for (int i = 0; i < 3; ++i) {
      if (!ctx.has_output(i)) continue;
      RETURN_IF_ERROR(ctx.ResizeLike(i, x0));
      *to[i] = ctx.output(i).data<float>();
    }
    return ForEach(ctx.runtime(), x0.size(), grad);
  }
};

REGISTER_DEVICE_KERNEL(cross, MakeDeviceKernel<CrossKernel>);
REGISTER_DEVICE_KERNEL(cross_grad, MakeDeviceKernel<CrossGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
