// sigmoid_cross_entropy_with_logits, square_error, log_loss, focal_loss, hinge_loss, huber_loss, poisson_loss,
// quantile_loss, softmax, softmax_with_cross_entropy and their gradients (files of the same names in ops/).
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
  const auto attr = [&](const char* name) { return static_cast<float>(init.attrs.Float(name)); };
  if constexpr (std::is_same_v<Math, LogLossMath>) {
    return {.epsilon = attr("epsilon")};
  } else if constexpr (std::is_same_v<Math, FocalLossMath>) {
    const float alpha = attr("alpha");
    return {.gamma = attr("gamma"), .positive = alpha < 0 ? 1 : alpha, .negative = alpha < 0 ? 1 : 1 - alpha};
  } else if constexpr (std::is_same_v<Math, HingeLossMath>) {
    return {.margin = attr("margin")};
  } else if constexpr (std::is_same_v<Math, HuberLossMath>) {
    return {.delta = attr("delta")};
  } else if constexpr (std::is_same_v<Math, QuantileLossMath>) {
    return {.quantile = attr("quantile")};
  } else {
    return {};
  }
}

// A loss with one number per example, or its gradient.
template <typename Math, bool kGradient>
class ColumnLossKernel : public OpDeviceKernel {
  enum Input { kX, kLabel, kWeight, kOutGrad };
  enum Output { kOut };  // X@GRAD of the gradient

 public:
  explicit ColumnLossKernel(const KernelInit& init) : math_(MakeMath<Math>(init)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& label = ctx.input(kLabel);
    const DeviceTensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckLike("Label", label, x));
    if (weight != nullptr) RETURN_IF_ERROR(CheckLike("Weight", *weight, x));
    if (kGradient) RETURN_IF_ERROR(CheckLike("the gradient of the loss", ctx.input(kOutGrad), x));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x));
    const float* const xs = x.data<float>();
    const float* const labels = label.data<float>();
    const float* const weights = weight == nullptr ? nullptr : weight->data<float>();
    DeviceTensor& out = ctx.output(kOut);
    if constexpr (kGradient) {
      const DeviceTensor& dout = ctx.input(kOutGrad);
      return ForEach(ctx.runtime(), x.size(),
                     LossGradAt<Math>{math_, xs, labels, weights, dout.data<float>(), out.data<float>()});
    } else {
      return ForEach(ctx.runtime(), x.size(), LossAt<Math>{math_, xs, labels, weights, out.data<float>()});
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
    // Take the address before Out gets its memory: Out may be X.
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

// Reads and checks the classes of all lanes on the host: they are input data.
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

class SoftmaxLossKernel : public OpDeviceKernel {
  enum Input { kLogits, kLabel, kWeight };
  enum Output { kSoftmax, kLoss };

 public:
  explicit SoftmaxLossKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& logits = ctx.input(kLogits);
    RETURN_IF_ERROR(CheckRank("Logits", logits, 2));
    const std::vector<int64_t> rows = logits.lane_rows();
    RETURN_IF_ERROR(ReadLabels(ctx, kLabel, rows, logits.width(), &label_));
    if (ctx.has_input(kWeight)) RETURN_IF_ERROR(CheckRows("Weight", ctx.input(kWeight), logits, {1}));
    ASSIGN_OR_RETURN(const int32_t* const label, SendLabels(ctx, label_, &labels_));
    RETURN_IF_ERROR(ctx.ResizeLike(kSoftmax, logits));
    RETURN_IF_ERROR(ctx.Resize(kLoss, 2, rows, {1}));
    return ForEach(ctx.runtime(), ctx.output(kSoftmax).rows(),
                   SoftmaxRowAt{.x = logits.data<float>(),
                                .n = logits.width(),
                                .y = ctx.output(kSoftmax).data<float>(),
                                .label = label,
                                .weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr,
                                .loss = ctx.output(kLoss).data<float>()});
  }

 private:
  std::vector<int32_t> label_;
  DeviceLanding labels_;
};

class SoftmaxLossGradKernel : public OpDeviceKernel {
  enum Input { kLabel, kWeight, kSoftmax, kLossGrad };
  enum Output { kLogitsGrad };

 public:
  explicit SoftmaxLossGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& softmax = ctx.input(kSoftmax);
    RETURN_IF_ERROR(CheckRank("Softmax", softmax, 2));
    RETURN_IF_ERROR(ReadLabels(ctx, kLabel, softmax.lane_rows(), softmax.width(), &label_));
    if (ctx.has_input(kWeight)) RETURN_IF_ERROR(CheckRows("Weight", ctx.input(kWeight), softmax, {1}));
    RETURN_IF_ERROR(CheckRows("Loss@GRAD", ctx.input(kLossGrad), softmax, {1}));
    ASSIGN_OR_RETURN(const int32_t* const label, SendLabels(ctx, label_, &labels_));
    RETURN_IF_ERROR(ctx.ResizeLike(kLogitsGrad, softmax));
    return ForEach(ctx.runtime(), ctx.output(kLogitsGrad).size(),
                   SoftmaxLossGradAt{.softmax = softmax.data<float>(),
                                     .label = label,
                                     .weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr,
                                     .dloss = ctx.input(kLossGrad).data<float>(),
                                     .n = softmax.width(),
                                     .dx = ctx.output(kLogitsGrad).data<float>()});
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
using FocalLoss = ColumnLossKernel<FocalLossMath, false>;
using FocalLossGrad = ColumnLossKernel<FocalLossMath, true>;
using HingeLoss = ColumnLossKernel<HingeLossMath, false>;
using HingeLossGrad = ColumnLossKernel<HingeLossMath, true>;
using HuberLoss = ColumnLossKernel<HuberLossMath, false>;
using HuberLossGrad = ColumnLossKernel<HuberLossMath, true>;
using PoissonLoss = ColumnLossKernel<PoissonLossMath, false>;
using PoissonLossGrad = ColumnLossKernel<PoissonLossMath, true>;
using QuantileLoss = ColumnLossKernel<QuantileLossMath, false>;
using QuantileLossGrad = ColumnLossKernel<QuantileLossMath, true>;

REGISTER_DEVICE_KERNEL(sigmoid_cross_entropy_with_logits, MakeDeviceKernel<SigmoidCrossEntropy>);
REGISTER_DEVICE_KERNEL(sigmoid_cross_entropy_with_logits_grad, MakeDeviceKernel<SigmoidCrossEntropyGrad>);
REGISTER_DEVICE_KERNEL(square_error, MakeDeviceKernel<SquareError>);
REGISTER_DEVICE_KERNEL(square_error_grad, MakeDeviceKernel<SquareErrorGrad>);
REGISTER_DEVICE_KERNEL(log_loss, MakeDeviceKernel<LogLoss>);
REGISTER_DEVICE_KERNEL(log_loss_grad, MakeDeviceKernel<LogLossGrad>);
REGISTER_DEVICE_KERNEL(focal_loss, MakeDeviceKernel<FocalLoss>);
REGISTER_DEVICE_KERNEL(focal_loss_grad, MakeDeviceKernel<FocalLossGrad>);
REGISTER_DEVICE_KERNEL(hinge_loss, MakeDeviceKernel<HingeLoss>);
REGISTER_DEVICE_KERNEL(hinge_loss_grad, MakeDeviceKernel<HingeLossGrad>);
REGISTER_DEVICE_KERNEL(huber_loss, MakeDeviceKernel<HuberLoss>);
REGISTER_DEVICE_KERNEL(huber_loss_grad, MakeDeviceKernel<HuberLossGrad>);
REGISTER_DEVICE_KERNEL(poisson_loss, MakeDeviceKernel<PoissonLoss>);
REGISTER_DEVICE_KERNEL(poisson_loss_grad, MakeDeviceKernel<PoissonLossGrad>);
REGISTER_DEVICE_KERNEL(quantile_loss, MakeDeviceKernel<QuantileLoss>);
REGISTER_DEVICE_KERNEL(quantile_loss_grad, MakeDeviceKernel<QuantileLossGrad>);
REGISTER_DEVICE_KERNEL(softmax, MakeDeviceKernel<SoftmaxKernel>);
REGISTER_DEVICE_KERNEL(softmax_grad, MakeDeviceKernel<SoftmaxGradKernel>);
REGISTER_DEVICE_KERNEL(softmax_with_cross_entropy, MakeDeviceKernel<SoftmaxLossKernel>, {"Label"});
REGISTER_DEVICE_KERNEL(softmax_with_cross_entropy_grad, MakeDeviceKernel<SoftmaxLossGradKernel>, {"Label"});

}  // namespace
}  // namespace device
}  // namespace weir
