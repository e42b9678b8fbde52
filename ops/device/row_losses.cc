// bpr_loss, pairwise_hinge_loss, sampled_softmax, multi_label_cross_entropy, listwise_softmax and their gradients
// (files of the same names in ops/).
#include <type_traits>
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/row_losses_functors.h"

namespace weir {
namespace device {
namespace {

using Bpr = PairLossMath<BprTerm>;
using PairwiseHinge = PairLossMath<PairwiseHingeTerm>;

template <typename Math>
Math MakeMath(const KernelInit& init) {
  if constexpr (std::is_same_v<Math, PairwiseHinge>) {
    return {{.margin = static_cast<float>(init.attrs.Float("margin"))}};
  } else {
    return {};
  }
}

// Returns the input's numbers, one per row of `rows`; null if there is no such input.
absl::StatusOr<const float*> Column(DeviceKernelContext& ctx, int slot, std::string_view name,
                                    const DeviceTensor& rows) {
  if (!ctx.has_input(slot)) return static_cast<const float*>(nullptr);
  RETURN_IF_ERROR(CheckRows(name, ctx.input(slot), rows, {1}));
  return ctx.input(slot).data<float>();
}

absl::Status CheckPair(const DeviceTensor& positive, const DeviceTensor& negative) {
  RETURN_IF_ERROR(CheckRank("Negative", negative, 2));
  RETURN_IF_ERROR(CheckRank("Positive", positive, 2));
  return CheckRows("Positive", positive, negative, {1});
}

template <typename Math>
class PairLossKernel : public OpDeviceKernel {
  enum Input { kPositive, kNegative, kWeight };

 public:
  explicit PairLossKernel(const KernelInit& init) : math_(MakeMath<Math>(init)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &positive = ctx.input(kPositive), &negative = ctx.input(kNegative);
    RETURN_IF_ERROR(CheckPair(positive, negative));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", negative));
    RETURN_IF_ERROR(ctx.ResizeLike(0, positive));
    return ForEach(ctx.runtime(), negative.rows(),
                   PairLossAt<Math>{math_, negative.width(), positive.data<float>(), negative.data<float>(), weight,
                                    ctx.output(0).data<float>()});
  }

 private:
  const Math math_;
};

template <typename Math>
class PairLossGradKernel : public OpDeviceKernel {
  enum Input { kPositive, kNegative, kWeight, kOutGrad };
  enum Output { kPositiveGrad, kNegativeGrad };

 public:
  explicit PairLossGradKernel(const KernelInit& init) : math_(MakeMath<Math>(init)) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &positive = ctx.input(kPositive), &negative = ctx.input(kNegative);
    RETURN_IF_ERROR(CheckPair(positive, negative));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", negative));
    ASSIGN_OR_RETURN(const float* const dout, Column(ctx, kOutGrad, "Out@GRAD", negative));
    PairLossGradAt<Math> grad = {
        math_, negative.width(), positive.data<float>(), negative.data<float>(), weight, dout, nullptr, nullptr};
    if (ctx.has_output(kPositiveGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kPositiveGrad, positive));
      grad.dpositive = ctx.output(kPositiveGrad).template data<float>();
    }
    if (ctx.has_output(kNegativeGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kNegativeGrad, negative));
      grad.dnegative = ctx.output(kNegativeGrad).template data<float>();
    }
    return ForEach(ctx.runtime(), negative.rows(), grad);
  }

 private:
  const Math math_;
};

class MultiLabelKernel : public OpDeviceKernel {
  enum Input { kX, kLabel, kWeight };

 public:
  explicit MultiLabelKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &label = ctx.input(kLabel);
    RETURN_IF_ERROR(CheckRank("X", x, 2));
    RETURN_IF_ERROR(CheckLike("Label", label, x));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", x));
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {1}));
    return ForEach(ctx.runtime(), x.rows(),
                   MultiLabelAt{.n = x.width(),
                                .x = x.data<float>(),
                                .label = label.data<float>(),
                                .weight = weight,
                                .out = ctx.output(0).data<float>()});
  }
};

class MultiLabelGradKernel : public OpDeviceKernel {
  enum Input { kX, kLabel, kWeight, kOutGrad };

 public:
  explicit MultiLabelGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &label = ctx.input(kLabel);
    RETURN_IF_ERROR(CheckRank("X", x, 2));
    RETURN_IF_ERROR(CheckLike("Label", label, x));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", x));
    ASSIGN_OR_RETURN(const float* const dout, Column(ctx, kOutGrad, "Out@GRAD", x));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(),
                   MultiLabelGradAt{.n = x.width(),
                                    .x = x.data<float>(),
                                    .label = label.data<float>(),
                                    .weight = weight,
                                    .dout = dout,
                                    .dx = ctx.output(0).data<float>()});
  }
};

// Labels are checked where they are read (trainer/data/data_spec.h).
class ListwiseSoftmaxKernel : public OpDeviceKernel {
  enum Input { kScores, kLabel, kLength, kWeight };
  enum Output { kSoftmax, kOut };

 public:
  explicit ListwiseSoftmaxKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &scores = ctx.input(kScores), &label = ctx.input(kLabel);
    RETURN_IF_ERROR(CheckRank("Scores", scores, 2));
    RETURN_IF_ERROR(CheckLike("Label", label, scores));
    ASSIGN_OR_RETURN(const float* const length, Column(ctx, kLength, "Length", scores));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", scores));
    RETURN_IF_ERROR(ctx.ResizeLike(kSoftmax, scores));
    RETURN_IF_ERROR(ctx.Resize(kOut, 2, scores.lane_rows(), {1}));
    return ForEach(ctx.runtime(), scores.rows(),
                   ListwiseSoftmaxAt{.n = scores.width(),
                                     .scores = scores.data<float>(),
                                     .label = label.data<float>(),
                                     .length = length,
                                     .weight = weight,
                                     .softmax = ctx.output(kSoftmax).data<float>(),
                                     .out = ctx.output(kOut).data<float>()});
  }
};

class ListwiseSoftmaxGradKernel : public OpDeviceKernel {
  enum Input { kLabel, kLength, kWeight, kSoftmax, kOutGrad };

 public:
  explicit ListwiseSoftmaxGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &softmax = ctx.input(kSoftmax), &label = ctx.input(kLabel);
    RETURN_IF_ERROR(CheckRank("Softmax", softmax, 2));
    RETURN_IF_ERROR(CheckLike("Label", label, softmax));
    ASSIGN_OR_RETURN(const float* const length, Column(ctx, kLength, "Length", softmax));
    ASSIGN_OR_RETURN(const float* const weight, Column(ctx, kWeight, "Weight", softmax));
    ASSIGN_OR_RETURN(const float* const dout, Column(ctx, kOutGrad, "Out@GRAD", softmax));
    RETURN_IF_ERROR(ctx.ResizeLike(0, softmax));
    return ForEach(ctx.runtime(), softmax.rows(),
                   ListwiseSoftmaxGradAt{.n = softmax.width(),
                                         .label = label.data<float>(),
                                         .length = length,
                                         .weight = weight,
                                         .softmax = softmax.data<float>(),
                                         .dout = dout,
                                         .dx = ctx.output(0).data<float>()});
  }
};

REGISTER_DEVICE_KERNEL(bpr_loss, MakeDeviceKernel<PairLossKernel<Bpr>>);
REGISTER_DEVICE_KERNEL(bpr_loss_grad, MakeDeviceKernel<PairLossGradKernel<Bpr>>);
REGISTER_DEVICE_KERNEL(pairwise_hinge_loss, MakeDeviceKernel<PairLossKernel<PairwiseHinge>>);
REGISTER_DEVICE_KERNEL(pairwise_hinge_loss_grad, MakeDeviceKernel<PairLossGradKernel<PairwiseHinge>>);
REGISTER_DEVICE_KERNEL(sampled_softmax, MakeDeviceKernel<PairLossKernel<SampledSoftmaxMath>>);
REGISTER_DEVICE_KERNEL(sampled_softmax_grad, MakeDeviceKernel<PairLossGradKernel<SampledSoftmaxMath>>);
REGISTER_DEVICE_KERNEL(multi_label_cross_entropy, MakeDeviceKernel<MultiLabelKernel>);
REGISTER_DEVICE_KERNEL(multi_label_cross_entropy_grad, MakeDeviceKernel<MultiLabelGradKernel>);
REGISTER_DEVICE_KERNEL(listwise_softmax, MakeDeviceKernel<ListwiseSoftmaxKernel>);
REGISTER_DEVICE_KERNEL(listwise_softmax_grad, MakeDeviceKernel<ListwiseSoftmaxGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
