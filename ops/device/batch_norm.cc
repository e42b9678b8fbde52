// batch_norm and its gradient (ops/batch_norm.cc). Measurements are made lane by lane, [lanes, channels]: sums over
// each example, then over the examples of the lane.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/batch_norm_functors.h"
#include "ops/device/column_sums.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/picture_operands.h"

namespace weir {
namespace device {
namespace {

absl::StatusOr<NormDims> MakeDims(const DeviceTensor& x) {
  RETURN_IF_ERROR(CheckThere("X", x));
  if (x.rank() < 2)
    return absl::InvalidArgumentError(absl::StrCat("X must be [B, C, ..], got ", ShapeString(x.dims())));
  const int64_t channels = x.row_dims()[0];
  return NormDims{.examples = RowsOf(x), .channels = channels, .size = ElementCount(x.row_dims().subspan(1))};
}

// [channels] of each lane.
absl::Status CheckMeasured(std::string_view slot, const DeviceTensor& tensor, const NormDims& d) {
  RETURN_IF_ERROR(CheckRank(slot, tensor, 1));
  if (tensor.lane_rows() == std::vector<int64_t>(static_cast<size_t>(d.examples.lanes), d.channels))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(slot.data(), slot.size()), " must be [", d.channels,
                                                 "] in each of ", d.examples.lanes, " lanes, got ",
                                                 ShapeString(tensor.dims()), " in ", tensor.lanes()));
}

absl::Status ResizeMeasured(DeviceKernelContext& ctx, int slot, const NormDims& d) {
  return ctx.Resize(slot, 1, std::vector<int64_t>(static_cast<size_t>(d.examples.lanes), d.channels), {});
}

// Sums of channels over the examples of each lane.
class ChannelSums {
 public:
  // Returns memory for the sums of each example, which the `sum` of Add fills.
  absl::StatusOr<float*> OfExamples(DeviceKernelContext& ctx, const NormDims& d) {
    const int64_t count = d.examples.begin[d.examples.lanes] * d.channels;
    RETURN_IF_ERROR(of_examples_.Reserve(ctx.memory(), static_cast<size_t>(count) * sizeof(float)));
    return of_examples_.data<float>();
  }
  template <typename F>
  absl::Status Add(DeviceKernelContext& ctx, const NormDims& d, const F& sum, float* to) {
    const int64_t count = d.examples.begin[d.examples.lanes] * d.channels;
    RETURN_IF_ERROR(d.size == 1 ? ForEach(ctx.runtime(), count, OnlyTermAt<F>{.f = sum})
                                : Reduce(ctx.runtime(), count, sum));
    return SumColumns(ctx, of_examples_.data<float>(), d.examples, d.channels, &scratch_, to);
  }

 private:
  DeviceArray of_examples_, scratch_;
};

class BatchNormKernel : public OpDeviceKernel {
  enum Input { kX, kScale, kShift, kMean, kVariance };
  enum Output { kOut, kBatchMean, kBatchVariance };

 public:
  BatchNormKernel(PictureActivation activation, float epsilon) : activation_(activation), epsilon_(epsilon) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const NormDims d, MakeDims(x));
    RETURN_IF_ERROR(CheckShared("Scale", ctx.input(kScale), {d.channels}));
    RETURN_IF_ERROR(CheckShared("Shift", ctx.input(kShift), {d.channels}));
    RETURN_IF_ERROR(CheckShared("Mean", ctx.input(kMean), {d.channels}));
    RETURN_IF_ERROR(CheckShared("Variance", ctx.input(kVariance), {d.channels}));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x));
    for (int slot : {kBatchMean, kBatchVariance}) RETURN_IF_ERROR(ResizeMeasured(ctx, slot, d));
    const int64_t measured = d.examples.lanes * d.channels;
    float* const mean = ctx.output(kBatchMean).data<float>();
    float* const variance = ctx.output(kBatchVariance).data<float>();
    if (ctx.step->training) {
      RETURN_IF_ERROR(Measure(ctx, d, x.data<float>(), mean, variance));
    } else {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), measured,
                              NormRunningAt{.channels = d.channels,
                                            .mean = ctx.input(kMean).data<float>(),
                                            .variance = ctx.input(kVariance).data<float>(),
                                            .to_mean = mean,
                                            .to_variance = variance}));
    }
    RETURN_IF_ERROR(factor_.Reserve(ctx.memory(), static_cast<size_t>(measured) * sizeof(float)));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), measured,
                            NormFactorAt{.channels = d.channels,
                                         .epsilon = epsilon_,
                                         .scale = ctx.input(kScale).data<float>(),
                                         .variance = variance,
                                         .factor = factor_.data<float>()}));
    return ForEach(ctx.runtime(), x.size(),
                   NormAt{.d = d,
                          .f = activation_,
                          .x = x.data<float>(),
                          .mean = mean,
                          .factor = factor_.data<float>(),
                          .shift = ctx.input(kShift).data<float>(),
                          .out = ctx.output(kOut).data<float>()});
  }

 private:
  absl::Status Measure(DeviceKernelContext& ctx, const NormDims& d, const float* x, float* mean, float* variance) {
    const int64_t measured = d.examples.lanes * d.channels;
    ASSIGN_OR_RETURN(float* const sums, sums_.OfExamples(ctx, d));
    RETURN_IF_ERROR(sums_.Add(ctx, d, NormSum{.d = d, .x = x, .out = sums}, mean));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), measured, NormMeanAt{.d = d, .sum = mean}));
    RETURN_IF_ERROR(sums_.Add(ctx, d, NormSquares{.d = d, .x = x, .mean = mean, .out = sums}, variance));
    return ForEach(ctx.runtime(), measured, NormMeanAt{.d = d, .sum = variance});
  }

  const PictureActivation activation_;
  const float epsilon_;
  ChannelSums sums_;
  DeviceArray factor_;
};

class BatchNormGradKernel : public OpDeviceKernel {
  enum Input { kX, kScale, kBatchMean, kBatchVariance, kOut, kOutGrad };
  enum Output { kXGrad, kScaleGrad, kShiftGrad, kMeanGrad, kVarianceGrad };

 public:
  BatchNormGradKernel(PictureActivation activation, float epsilon) : activation_(activation), epsilon_(epsilon) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const NormDims d, MakeDims(x));
    RETURN_IF_ERROR(CheckShared("Scale", ctx.input(kScale), {d.channels}));
    RETURN_IF_ERROR(CheckMeasured("BatchMean", ctx.input(kBatchMean), d));
    RETURN_IF_ERROR(CheckMeasured("BatchVariance", ctx.input(kBatchVariance), d));
    RETURN_IF_ERROR(CheckLike("Out", ctx.input(kOut), x));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(kOutGrad), x));
    const float* const mean = ctx.input(kBatchMean).data<float>();
    const float* const variance = ctx.input(kBatchVariance).data<float>();
    const float* const out = ctx.input(kOut).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    const int64_t measured = d.examples.lanes * d.channels;
    for (int slot : {kMeanGrad, kVarianceGrad}) {
      if (!ctx.has_output(slot)) continue;
      RETURN_IF_ERROR(ResizeMeasured(ctx, slot, d));
      RETURN_IF_ERROR(
          ForEach(ctx.runtime(), measured,
                  NormTimesExamplesAt{
                      .d = d, .measured = slot == kMeanGrad ? mean : variance, .to = ctx.output(slot).data<float>()}));
    }
    RETURN_IF_ERROR(work_.Reserve(ctx.memory(), static_cast<size_t>(5 * measured) * sizeof(float)));
    float* const work = work_.data<float>();
    ASSIGN_OR_RETURN(float* const dscale, Wanted(ctx, kScaleGrad, d, work));
    ASSIGN_OR_RETURN(float* const dshift, Wanted(ctx, kShiftGrad, d, work + measured));
    float* const factor = work + 2 * measured;
    float* const shift = work + 3 * measured;
    float* const slope = work + 4 * measured;
    ASSIGN_OR_RETURN(float* const sums, sums_.OfExamples(ctx, d));
    RETURN_IF_ERROR(
        sums_.Add(ctx, d, NormBackSum{.d = d, .f = activation_, .out = out, .dout = dout, .sums = sums}, dshift));
    RETURN_IF_ERROR(sums_.Add(
        ctx, d,
        NormBackProducts{
            .d = d, .f = activation_, .out = out, .dout = dout, .x = x.data<float>(), .mean = mean, .sums = sums},
        dscale));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), measured,
                            NormSlopeAt{.d = d,
                                        .epsilon = epsilon_,
                                        .scale = ctx.input(kScale).data<float>(),
                                        .variance = variance,
                                        .dshift = dshift,
                                        .dscale = dscale,
                                        .factor = factor,
                                        .shift = shift,
                                        .slope = slope}));
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return ForEach(ctx.runtime(), x.size(),
                   NormInputAt{.d = d,
                               .f = activation_,
                               .x = x.data<float>(),
                               .mean = mean,
                               .factor = factor,
                               .shift = shift,
                               .slope = slope,
                               .out = out,
                               .dout = dout,
                               .dx = ctx.output(kXGrad).data<float>()});
  }

 private:
  static absl::StatusOr<float*> Wanted(DeviceKernelContext& ctx, int slot, const NormDims& d, float* otherwise) {
    if (!ctx.has_output(slot)) return otherwise;
    RETURN_IF_ERROR(ResizeMeasured(ctx, slot, d));
    return ctx.output(slot).data<float>();
  }

  const PictureActivation activation_;
  const float epsilon_;
  ChannelSums sums_;
  DeviceArray work_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeBatchNorm(const KernelInit& init) {
  ASSIGN_OR_RETURN(const PictureActivation activation, ReadActivation(init.attrs));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(activation, static_cast<float>(init.attrs.Float("epsilon"))));
}

REGISTER_DEVICE_KERNEL(batch_norm, MakeBatchNorm<BatchNormKernel>);
REGISTER_DEVICE_KERNEL(batch_norm_grad, MakeBatchNorm<BatchNormGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
