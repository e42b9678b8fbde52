// dropout and its gradient (ops/dropout.cc), with the same draws.
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "ops/device/dropout_functors.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class DropoutKernel : public OpDeviceKernel {
 public:
  explicit DropoutKernel(const KernelInit& init)
      : rate_(static_cast<float>(init.attrs.Float("rate"))), layer_(StableHash(init.attrs.String("layer"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    // Take the address before Out gets its memory: Out may be X.
    const float* const xs = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(1, x));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    const int64_t n = ctx.output(0).size();
    float* const out = ctx.output(0).data<float>();
    float* const mask = ctx.output(1).data<float>();
    if (!ctx.step->training || rate_ == 0) {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), n, FillAt{.value = 1.0f, .out = mask}));
      return ForEach(ctx.runtime(), n, MultiplyAt{.x = xs, .factor = 1.0f, .y = out});
    }
    return ForEach(ctx.runtime(), n,
                   DropoutAt{.x = xs,
                             .elements = ElementsOf(ctx.output(0)),
                             .key = MixId(ctx.step->seed) ^ layer_,
                             .counter_high = (static_cast<uint64_t>(ctx.step->step) << 16) |
                                             static_cast<uint64_t>(ctx.step->first_lane),
                             .rate = rate_,
                             .keep = 1.0f / (1.0f - rate_),
                             .mask = mask,
                             .out = out});
  }

 private:
  const float rate_;
  const uint64_t layer_;
};

class DropoutGradKernel : public OpDeviceKernel {
 public:
  explicit DropoutGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& mask = ctx.input(0);
    const DeviceTensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckThere("Mask", mask));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", dout, mask));
    RETURN_IF_ERROR(ctx.ResizeLike(0, dout));
    return ForEach(ctx.runtime(), ctx.output(0).size(),
                   ProductAt{.x = dout.data<float>(), .y = mask.data<float>(), .out = ctx.output(0).data<float>()});
  }
};

REGISTER_DEVICE_KERNEL(dropout, MakeDeviceKernel<DropoutKernel>);
REGISTER_DEVICE_KERNEL(dropout_grad, MakeDeviceKernel<DropoutGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
