// prelu, dice and their gradients (files of the same names in ops/). Sums over rows are in the device's order. The
// measurements of dice are made lane by lane, [lanes, W], as batch_norm's.
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/batch_norm_functors.h"
#include "ops/device/column_sums.h"
#include "ops/device/launch.h"
#include "ops/device/prelu_functors.h"
#include "ops/device/row_operands.h"

namespace weir {
namespace device {
namespace {

absl::Status CheckSlope(const DeviceTensor& slope, const LastRows& rows) {
  RETURN_IF_ERROR(CheckRank("Slope", slope, 1));
  return CheckShared("Slope", slope, {slope.size() == 1 ? 1 : rows.width});
}

class PreluKernel : public OpDeviceKernel {
 public:
  explicit PreluKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(0), &slope = ctx.input(1);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckSlope(slope, rows));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(),
                   PreluAt{.slopes = slope.size(),
                           .x = x.data<float>(),
                           .slope = slope.data<float>(),
                           .out = ctx.output(0).data<float>()});
  }
};

class PreluGradKernel : public OpDeviceKernel {
  enum Input { kX, kSlope, kOutGrad };
  enum Output { kXGrad, kSlopeGrad };

 public:
  explicit PreluGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &slope = ctx.input(kSlope), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckSlope(slope, rows));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", dout, x));
    if (ctx.has_output(kSlopeGrad)) {
      const int64_t slopes = slope.size(), terms = rows.count * slopes;
      RETURN_IF_ERROR(rows.ResizeSums(ctx, kSlopeGrad, slopes));
      RETURN_IF_ERROR(terms_.Reserve(ctx.memory(), static_cast<size_t>(terms) * sizeof(float)));
      float* const term = terms_.data<float>();
      RETURN_IF_ERROR(
          slopes == rows.width
              ? ForEach(ctx.runtime(), terms,
                        PreluSlopeTermAt{.x = x.data<float>(), .dout = dout.data<float>(), .term = term})
              : ForEach(ctx.runtime(), terms,
                        PreluRowTermAt{
                            .width = rows.width, .x = x.data<float>(), .dout = dout.data<float>(), .term = term}));
      RETURN_IF_ERROR(SumColumns(ctx, term, rows.lanes, slopes, &sums_, ctx.output(kSlopeGrad).data<float>()));
    }
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    const float* const from = dout.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return ForEach(ctx.runtime(), x.size(),
                   PreluInputAt{.slopes = slope.size(),
                                .x = x.data<float>(),
                                .slope = slope.data<float>(),
                                .dout = from,
                                .dx = ctx.output(kXGrad).data<float>()});
  }

 private:
  DeviceArray terms_, sums_;
};

// [width] of each lane.
absl::Status CheckMeasured(std::string_view slot, const DeviceTensor& tensor, const LastRows& rows) {
  RETURN_IF_ERROR(CheckRank(slot, tensor, 1));
  if (tensor.lane_rows() == std::vector<int64_t>(static_cast<size_t>(rows.lanes.lanes), rows.width)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(slot.data(), slot.size()), " must be [", rows.width,
                                                 "] in each of ", rows.lanes.lanes, " lanes, got ",
                                                 ShapeString(tensor.dims()), " in ", tensor.lanes()));
}

// Rows of W columns, as batch_norm's functors see them: examples of one element in each channel.
NormDims ColumnDims(const LastRows& rows) { return {.examples = rows.lanes, .channels = rows.width, .size = 1}; }

class DiceKernel : public OpDeviceKernel {
  enum Input { kX, kSlope, kMean, kVariance };
  enum Output { kOut, kBatchMean, kBatchVariance };

 public:
  explicit DiceKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckShared("Slope", ctx.input(kSlope), {rows.width}));
    RETURN_IF_ERROR(CheckShared("Mean", ctx.input(kMean), {rows.width}));
    RETURN_IF_ERROR(CheckShared("Variance", ctx.input(kVariance), {rows.width}));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x));
    for (const int slot : {kBatchMean, kBatchVariance}) RETURN_IF_ERROR(rows.ResizeSums(ctx, slot, rows.width));
    const int64_t measured = rows.lanes.lanes * rows.width;
    float* const mean = ctx.output(kBatchMean).data<float>();
    float* const variance = ctx.output(kBatchVariance).data<float>();
    if (ctx.step->training) {
      RETURN_IF_ERROR(Measure(ctx, rows, x.data<float>(), mean, variance));
    } else {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), measured,
                              NormRunningAt{.channels = rows.width,
                                            .mean = ctx.input(kMean).data<float>(),
                                            .variance = ctx.input(kVariance).data<float>(),
                                            .to_mean = mean,
                                            .to_variance = variance}));
    }
    RETURN_IF_ERROR(inverse_.Reserve(ctx.memory(), static_cast<size_t>(measured) * sizeof(float)));
    RETURN_IF_ERROR(
        ForEach(ctx.runtime(), measured,
                DiceInverseAt{.epsilon = epsilon_, .variance = variance, .inverse = inverse_.data<float>()}));
    return ForEach(ctx.runtime(), x.size(),
                   DiceAt{.d = {.rows = rows.lanes, .width = rows.width},
                          .x = x.data<float>(),
                          .mean = mean,
                          .inverse = inverse_.data<float>(),
                          .slope = ctx.input(kSlope).data<float>(),
                          .out = ctx.output(kOut).data<float>()});
  }

 private:
  absl::Status Measure(DeviceKernelContext& ctx, const LastRows& rows, const float* x, float* mean, float* variance) {
    const NormDims d = ColumnDims(rows);
    const int64_t measured = rows.lanes.lanes * rows.width, size = rows.count * rows.width;
    RETURN_IF_ERROR(SumColumns(ctx, x, rows.lanes, rows.width, &sums_, mean));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), measured, NormMeanAt{.d = d, .sum = mean}));
    RETURN_IF_ERROR(terms_.Reserve(ctx.memory(), static_cast<size_t>(size) * sizeof(float)));
    const NormSquares squares = {.d = d, .x = x, .mean = mean, .out = terms_.data<float>()};
    RETURN_IF_ERROR(ForEach(ctx.runtime(), size, OnlyTermAt<NormSquares>{.f = squares}));
    RETURN_IF_ERROR(SumColumns(ctx, terms_.data<float>(), rows.lanes, rows.width, &sums_, variance));
    return ForEach(ctx.runtime(), measured, NormMeanAt{.d = d, .sum = variance});
  }

  const float epsilon_;
  DeviceArray terms_, sums_, inverse_;
};

class DiceGradKernel : public OpDeviceKernel {
  enum Input { kX, kSlope, kBatchMean, kBatchVariance, kOutGrad };
  enum Output { kXGrad, kSlopeGrad, kMeanGrad, kVarianceGrad };

 public:
  explicit DiceGradKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckShared("Slope", ctx.input(kSlope), {rows.width}));
    RETURN_IF_ERROR(CheckMeasured("BatchMean", ctx.input(kBatchMean), rows));
    RETURN_IF_ERROR(CheckMeasured("BatchVariance", ctx.input(kBatchVariance), rows));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(kOutGrad), x));
    const float* const mean = ctx.input(kBatchMean).data<float>();
    const float* const variance = ctx.input(kBatchVariance).data<float>();
    const int64_t measured = rows.lanes.lanes * rows.width;
    for (const int slot : {kMeanGrad, kVarianceGrad}) {
      if (!ctx.has_output(slot)) continue;
      RETURN_IF_ERROR(rows.ResizeSums(ctx, slot, rows.width));
      const NormDims examples = {.examples = RowsOf(x), .channels = rows.width, .size = 1};
      RETURN_IF_ERROR(ForEach(
          ctx.runtime(), measured,
          NormTimesExamplesAt{
              .d = examples, .measured = slot == kMeanGrad ? mean : variance, .to = ctx.output(slot).data<float>()}));
    }
    if (!ctx.has_output(kXGrad) && !ctx.has_output(kSlopeGrad)) return absl::OkStatus();
    const int64_t size = x.size();
    RETURN_IF_ERROR(work_.Reserve(ctx.memory(), static_cast<size_t>(3 * size + 4 * measured) * sizeof(float)));
    float* const terms = work_.data<float>();
    float* const inverse = terms + 3 * size;
    float *const sum = inverse + measured, *const products = sum + measured;
    float* dslope = products + measured;
    if (ctx.has_output(kSlopeGrad)) {
      RETURN_IF_ERROR(rows.ResizeSums(ctx, kSlopeGrad, rows.width));
      dslope = ctx.output(kSlopeGrad).data<float>();
    }
    const DiceDims d = {.rows = rows.lanes, .width = rows.width};
    const float* const slope = ctx.input(kSlope).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    RETURN_IF_ERROR(
        ForEach(ctx.runtime(), measured, DiceInverseAt{.epsilon = epsilon_, .variance = variance, .inverse = inverse}));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), size,
                            DiceTermAt{.d = d,
                                       .x = x.data<float>(),
                                       .mean = mean,
                                       .inverse = inverse,
                                       .slope = slope,
                                       .dout = dout,
                                       .sum = terms,
                                       .products = terms + size,
                                       .dslope = terms + 2 * size}));
    RETURN_IF_ERROR(SumColumns(ctx, terms, rows.lanes, rows.width, &sums_, sum));
    RETURN_IF_ERROR(SumColumns(ctx, terms + size, rows.lanes, rows.width, &sums_, products));
    RETURN_IF_ERROR(SumColumns(ctx, terms + 2 * size, rows.lanes, rows.width, &sums_, dslope));
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    for (float* const means : {sum, products}) {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), measured, NormMeanAt{.d = ColumnDims(rows), .sum = means}));
    }
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return ForEach(ctx.runtime(), size,
                   DiceInputAt{.d = d,
                               .x = x.data<float>(),
                               .mean = mean,
                               .inverse = inverse,
                               .slope = slope,
                               .sum = sum,
                               .products = products,
                               .dout = dout,
                               .dx = ctx.output(kXGrad).data<float>()});
  }

 private:
  const float epsilon_;
  DeviceArray work_, sums_;
};

REGISTER_DEVICE_KERNEL(prelu, MakeDeviceKernel<PreluKernel>);
REGISTER_DEVICE_KERNEL(prelu_grad, MakeDeviceKernel<PreluGradKernel>);
REGISTER_DEVICE_KERNEL(dice, MakeDeviceKernel<DiceKernel>);
REGISTER_DEVICE_KERNEL(dice_grad, MakeDeviceKernel<DiceGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
