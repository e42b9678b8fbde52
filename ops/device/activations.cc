// relu, sigmoid, exp, tanh, square and their gradients (ops/activations.cc), and scale (ops/scale.cc).
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/rows.h"

namespace weir {
namespace device {
namespace {

template <typename Fn>
class UnaryKernel : public OpDeviceKernel {
 public:
  explicit UnaryKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    // Take the address before Out gets its memory: Out may be X, and data brought to the device shares its memory.
    const float* const xs = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(), UnaryAt<Fn>{.x = xs, .y = ctx.output(0).data<float>()});
  }
};

// Inputs: the saved tensor, Out@GRAD.
template <typename Fn>
class UnaryGradKernel : public OpDeviceKernel {
 public:
  explicit UnaryGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& saved = ctx.input(0);
    const DeviceTensor& dy = ctx.input(1);
    RETURN_IF_ERROR(CheckThere("the forward value", saved));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", dy, saved));
    RETURN_IF_ERROR(ctx.ResizeLike(0, dy));
    return ForEach(
        ctx.runtime(), dy.size(),
        UnaryGradAt<Fn>{.saved = saved.data<float>(), .dy = dy.data<float>(), .dx = ctx.output(0).data<float>()});
  }
};

class ScaleKernel : public OpDeviceKernel {
 public:
  explicit ScaleKernel(const KernelInit& init)
      : scale_(static_cast<float>(init.attrs.Float("scale"))), bias_(static_cast<float>(init.attrs.Float("bias"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    if (!x.initialized()) {
      ctx.output(0).Clear();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckThere("X", x));
    const float* const xs = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    float* const y = ctx.output(0).data<float>();
    // Multiply without adding a bias of 0, which would turn -0.0 into 0.0.
    if (bias_ == 0) return ForEach(ctx.runtime(), x.size(), MultiplyAt{.x = xs, .factor = scale_, .y = y});
    return ForEach(ctx.runtime(), x.size(), ScaleAt{.x = xs, .scale = scale_, .bias = bias_, .y = y});
  }

 private:
  const float scale_;
  const float bias_;
};

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeScale(const KernelInit& init) {
  ASSIGN_OR_RETURN(const bool rows, IsOfRows(init));
  if (rows) return MakeRowsScale(init);
  return MakeDeviceKernel<ScaleKernel>(init);
}

REGISTER_DEVICE_KERNEL(relu, MakeDeviceKernel<UnaryKernel<ReluFn>>);
REGISTER_DEVICE_KERNEL(relu_grad, MakeDeviceKernel<UnaryGradKernel<ReluFn>>);
REGISTER_DEVICE_KERNEL(sigmoid, MakeDeviceKernel<UnaryKernel<SigmoidFn>>);
REGISTER_DEVICE_KERNEL(sigmoid_grad, MakeDeviceKernel<UnaryGradKernel<SigmoidFn>>);
REGISTER_DEVICE_KERNEL(exp, MakeDeviceKernel<UnaryKernel<ExpFn>>);
REGISTER_DEVICE_KERNEL(exp_grad, MakeDeviceKernel<UnaryGradKernel<ExpFn>>);
REGISTER_DEVICE_KERNEL(tanh, MakeDeviceKernel<UnaryKernel<TanhFn>>);
REGISTER_DEVICE_KERNEL(tanh_grad, MakeDeviceKernel<UnaryGradKernel<TanhFn>>);
REGISTER_DEVICE_KERNEL(square, MakeDeviceKernel<UnaryKernel<SquareFn>>);
REGISTER_DEVICE_KERNEL(square_grad, MakeDeviceKernel<UnaryGradKernel<SquareFn>>);
REGISTER_DEVICE_KERNEL(scale, MakeScale);

}  // namespace
}  // namespace device
}  // namespace weir
