// learned_weight and its gradient (ops/learned_weight.cc).
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/learned_weight_functors.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class LearnedWeightKernel : public OpDeviceKernel {
  enum Input { kX, kLogVariance };

 public:
  explicit LearnedWeightKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckShared("LogVariance", ctx.input(kLogVariance), {1}));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(),
                   LearnedWeightAt{.x = x.data<float>(),
                                   .log_variance = ctx.input(kLogVariance).data<float>(),
                                   .out = ctx.output(0).data<float>()});
  }
};

class LearnedWeightGradKernel : public OpDeviceKernel {
  enum Input { kX, kLogVariance, kOutGrad };
  enum Output { kXGrad, kLogVarianceGrad };

 public:
  explicit LearnedWeightGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckShared("LogVariance", ctx.input(kLogVariance), {1}));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", dout, x));
    const float* const log_variance = ctx.input(kLogVariance).data<float>();
    const float* const from = dout.data<float>();
    // Before dX, which may share the memory of dOut.
    if (ctx.has_output(kLogVarianceGrad)) {
      RETURN_IF_ERROR(ctx.Resize(kLogVarianceGrad, 1, std::vector<int64_t>(static_cast<size_t>(x.lanes()), 1), {}));
      RETURN_IF_ERROR(Reduce(ctx.runtime(), x.lanes(),
                             LogVarianceGradOf{.x = x.data<float>(),
                                               .log_variance = log_variance,
                                               .dout = from,
                                               .rows = RowsOf(x),
                                               .out = ctx.output(kLogVarianceGrad).data<float>()}));
    }
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return ForEach(
        ctx.runtime(), x.size(),
        LearnedWeightGradAt{.log_variance = log_variance, .dout = from, .dx = ctx.output(kXGrad).data<float>()});
  }
};

REGISTER_DEVICE_KERNEL(learned_weight, MakeDeviceKernel<LearnedWeightKernel>);
REGISTER_DEVICE_KERNEL(learned_weight_grad, MakeDeviceKernel<LearnedWeightGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
