// sigmoid_cross_entropy_with_logits, square_error, log_loss, softmax, softmax_with_cross_entropy and their gradients
// (files of the same names in ops/).
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/losses_functors.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

template <typename Math>
Math MakeMath(const KernelInit& init) {
  if constexpr (std::is_same_v<Math, LogLossMath>) {
    return {.epsilon = static_cast<float>(init.attrs.Float("epsilon"))};
  } else {
    return {};
  }
}

// Slots X, Label, Weight? -> Out; for the gradient X, Label, Weight?, Out@GRAD -> X@GRAD.
template <typename Math, bool kGradient>
class ColumnLossKernel : public OpDeviceKernel {
 public:
  explicit ColumnLossKernel(const KernelInit& init) : math_(MakeMath<Math>(init)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckLike("Label", ctx.input(1), x));
    if (ctx.has_input(2)) RETURN_IF_ERROR(CheckLike("Weight", ctx.input(2), x));
    if (kGradient) RETURN_IF_ERROR(CheckLike("the gradient of the loss", ctx.input(3), x));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    const float* const xs = x.data<float>();
    const float* const label = ctx.input(1).data<float>();
    const float* const weight = ctx.has_input(2) ? ctx.input(2).data<float>() : nullptr;
    float* const out = ctx.output(0).data<float>();
    if constexpr (kGradient) {
      return ForEach(ctx.runtime(), x.size(),
                     LossGradAt<Math>{math_, xs, label, weight, ctx.input(3).data<float>(), out});
    } else {
      return ForEach(ctx.runtime(), x.size(), LossAt<Math>{math_, xs, label, weight, out});
    }
  }

 private:
  const Math math_;
};

class SoftmaxKernel : public OpDeviceKernel {
 public:
  explicit SoftmaxKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, 2));
    // Before Out gets its memory: it may be X.
    const float* const xs = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    if (x.width() == 0) return absl::OkStatus();
    return ForEach(ctx.runtime(), x.rows(), SoftmaxRowAt{.x = xs, .n = x.width(), .y = ctx.output(0).data<float>()});
  }
};

class SoftmaxGradKernel : public OpDeviceKernel {
 public:
  explicit SoftmaxGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& y = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("Out", y, 2));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(1), y));
    RETURN_IF_ERROR(ctx.ResizeLike(0, y));
    return ForEach(
        ctx.runtime(), y.rows(),
        SoftmaxGradRowAt{
            .y = y.data<float>(), .dy = ctx.input(1).data<float>(), .n = y.width(), .dx = ctx.output(0).data<float>()});
  }
};

// Classes of all lanes, checked: they are data, and stand on the host.
absl::Status ReadLabels(DeviceKernelContext& ctx, int slot, const std::vector<int64_t>& rows, int64_t classes,
                        std::vector<int32_t>* label) {
  label->clear();
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const Tensor& given = ctx.host_input<Tensor>(lane, slot);
    const int64_t n = rows[static_cast<size_t>(lane)];
    if (n > 0 &&
        (!given.initialized() || given.size() != n || (given.dtype() != v1::FLOAT32 && given.dtype() != v1::INT64))) {
      return absl::InvalidArgumentError(absl::StrCat("Label must be FLOAT32 or INT64 [", n, ", 1], got ",
                                                     v1::DType_Name(given.dtype()), " ", ShapeString(given.dims())));
    }
    for (int64_t i = 0; i < n; ++i) {
      const double c = given.dtype() == v1::INT64 ? static_cast<double>(given.data<int64_t>()[i])
                                                  : static_cast<double>(given.data<float>()[i]);
      if (!(c >= 0 && c < static_cast<double>(classes) && std::floor(c) == c)) {
        return absl::InvalidArgumentError(absl::StrCat("Label of example ", i, " is ", c,
                                                       "; it must be a class, a whole number in [0, ", classes, ")"));
      }
      label->push_back(static_cast<int32_t>(c));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const int32_t*> SendLabels(DeviceKernelContext& ctx, const std::vector<int32_t>& label,
                                          DeviceLanding* landing) {
  if (label.empty()) return static_cast<const int32_t*>(nullptr);
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> block,
                   ctx.transfers->Land(landing, {{.data = label.data(), .bytes = label.size() * sizeof(int32_t)}},
                                       "kernels", "labels"));
  RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
  ctx.transfers->AfterCompute();
  return static_cast<const int32_t*>(block->data());
}

// Inputs Logits, Label, Weight?; outputs Softmax, Loss.
class SoftmaxLossKernel : public OpDeviceKernel {
 public:
  explicit SoftmaxLossKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& logits = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("Logits", logits, 2));
    const std::vector<int64_t> rows = logits.lane_rows();
    RETURN_IF_ERROR(ReadLabels(ctx, 1, rows, logits.width(), &label_));
    if (ctx.has_input(2)) RETURN_IF_ERROR(CheckRows("Weight", ctx.input(2), logits, {1}));
    ASSIGN_OR_RETURN(const int32_t* const label, SendLabels(ctx, label_, &labels_));
    RETURN_IF_ERROR(ctx.ResizeLike(0, logits));
    RETURN_IF_ERROR(ctx.Resize(1, 2, rows, {1}));
    return ForEach(ctx.runtime(), ctx.output(0).rows(),
                   SoftmaxRowAt{.x = logits.data<float>(),
                                .n = logits.width(),
                                .y = ctx.output(0).data<float>(),
                                .label = label,
                                .weight = ctx.has_input(2) ? ctx.input(2).data<float>() : nullptr,
                                .loss = ctx.output(1).data<float>()});
  }

 private:
  std::vector<int32_t> label_;
  DeviceLanding labels_;
};

// Inputs Label, Weight?, Softmax, Loss@GRAD; output Logits@GRAD.
class SoftmaxLossGradKernel : public OpDeviceKernel {
 public:
  explicit SoftmaxLossGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& softmax = ctx.input(2);
    RETURN_IF_ERROR(CheckRank("Softmax", softmax, 2));
    RETURN_IF_ERROR(ReadLabels(ctx, 0, softmax.lane_rows(), softmax.width(), &label_));
    if (ctx.has_input(1)) RETURN_IF_ERROR(CheckRows("Weight", ctx.input(1), softmax, {1}));
    RETURN_IF_ERROR(CheckRows("Loss@GRAD", ctx.input(3), softmax, {1}));
    ASSIGN_OR_RETURN(const int32_t* const label, SendLabels(ctx, label_, &labels_));
    RETURN_IF_ERROR(ctx.ResizeLike(0, softmax));
    return ForEach(ctx.runtime(), ctx.output(0).size(),
                   SoftmaxLossGradAt{.softmax = softmax.data<float>(),
                                     .label = label,
                                     .weight = ctx.has_input(1) ? ctx.input(1).data<float>() : nullptr,
                                     .dloss = ctx.input(3).data<float>(),
                                     .n = softmax.width(),
                                     .dx = ctx.output(0).data<float>()});
  }

 private:
  std::vector<int32_t> label_;
  DeviceLanding labels_;
};

using SigmoidCrossEntropy = ColumnLossKernel<SigmoidCrossEntropyMath, false>;
using SigmoidCrossEntropyGrad = ColumnLossKernel<SigmoidCrossEntropyMath, true>;
using SquareError = ColumnLossKernel<SquareErrorMath, false>;
using SquareErrorGrad = ColumnLossKernel<SquareErrorMath, true>;
using LogLoss = ColumnLossKernel<LogLossMath, false>;
using LogLossGrad = ColumnLossKernel<LogLossMath, true>;

REGISTER_DEVICE_KERNEL(sigmoid_cross_entropy_with_logits, MakeDeviceKernel<SigmoidCrossEntropy>);
REGISTER_DEVICE_KERNEL(sigmoid_cross_entropy_with_logits_grad, MakeDeviceKernel<SigmoidCrossEntropyGrad>);
REGISTER_DEVICE_KERNEL(square_error, MakeDeviceKernel<SquareError>);
REGISTER_DEVICE_KERNEL(square_error_grad, MakeDeviceKernel<SquareErrorGrad>);
REGISTER_DEVICE_KERNEL(log_loss, MakeDeviceKernel<LogLoss>);
REGISTER_DEVICE_KERNEL(log_loss_grad, MakeDeviceKernel<LogLossGrad>);
REGISTER_DEVICE_KERNEL(softmax, MakeDeviceKernel<SoftmaxKernel>);
REGISTER_DEVICE_KERNEL(softmax_grad, MakeDeviceKernel<SoftmaxGradKernel>);
REGISTER_DEVICE_KERNEL(softmax_with_cross_entropy, MakeDeviceKernel<SoftmaxLossKernel>, {"Label"});
REGISTER_DEVICE_KERNEL(softmax_with_cross_entropy_grad, MakeDeviceKernel<SoftmaxLossGradKernel>, {"Label"});

}  // namespace
}  // namespace device
}  // namespace weir
