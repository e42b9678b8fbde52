// layer_norm and its gradient (ops/layer_norm.cc). Gradients of scale and shift are sums of columns, in the device's
// order.
#include "framework/base/status_macros.h"
#include "ops/device/column_sums.h"
#include "ops/device/launch.h"
#include "ops/device/layer_norm_functors.h"
#include "ops/device/row_operands.h"

namespace weir {
namespace device {
namespace {

class LayerNormKernel : public OpDeviceKernel {
  enum Input { kX, kScale, kShift };
  enum Output { kOut, kMean, kInverse };

 public:
  explicit LayerNormKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckShared("Scale", ctx.input(kScale), {rows.width}));
    RETURN_IF_ERROR(CheckShared("Shift", ctx.input(kShift), {rows.width}));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x));
    for (const int slot : {kMean, kInverse}) RETURN_IF_ERROR(ctx.Resize(slot, x.rank(), x.lane_rows(), rows.of_row));
    float* const mean = ctx.output(kMean).data<float>();
    float* const inverse = ctx.output(kInverse).data<float>();
    RETURN_IF_ERROR(
        ForEach(ctx.runtime(), rows.count,
                LayerNormMeasureAt{
                    .width = rows.width, .epsilon = epsilon_, .x = x.data<float>(), .mean = mean, .inverse = inverse}));
    return ForEach(ctx.runtime(), x.size(),
                   LayerNormAt{.width = rows.width,
                               .x = x.data<float>(),
                               .mean = mean,
                               .inverse = inverse,
                               .scale = ctx.input(kScale).data<float>(),
                               .shift = ctx.input(kShift).data<float>(),
                               .out = ctx.output(kOut).data<float>()});
  }

 private:
  const float epsilon_;
};

class LayerNormGradKernel : public OpDeviceKernel {
  enum Input { kX, kScale, kMean, kInverse, kOutGrad };
  enum Output { kXGrad, kScaleGrad, kShiftGrad };

 public:
  explicit LayerNormGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const LastRows rows, LastRows::Of(x));
    RETURN_IF_ERROR(CheckShared("Scale", ctx.input(kScale), {rows.width}));
    RETURN_IF_ERROR(CheckRows("Mean", ctx.input(kMean), x, rows.of_row));
    RETURN_IF_ERROR(CheckRows("Inverse", ctx.input(kInverse), x, rows.of_row));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", ctx.input(kOutGrad), x));
    const float* const mean = ctx.input(kMean).data<float>();
    const float* const inverse = ctx.input(kInverse).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    if (ctx.has_output(kScaleGrad)) {
      RETURN_IF_ERROR(terms_.Reserve(ctx.memory(), static_cast<size_t>(x.size()) * sizeof(float)));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), x.size(),
                              LayerNormScaleTermAt{.width = rows.width,
                                                   .x = x.data<float>(),
                                                   .mean = mean,
                                                   .inverse = inverse,
                                                   .dout = dout,
                                                   .term = terms_.data<float>()}));
      RETURN_IF_ERROR(rows.ResizeSums(ctx, kScaleGrad, rows.width));
      RETURN_IF_ERROR(
          SumColumns(ctx, terms_.data<float>(), rows.lanes, rows.width, &sums_, ctx.output(kScaleGrad).data<float>()));
    }
    if (ctx.has_output(kShiftGrad)) {
      RETURN_IF_ERROR(rows.ResizeSums(ctx, kShiftGrad, rows.width));
      RETURN_IF_ERROR(SumColumns(ctx, dout, rows.lanes, rows.width, &sums_, ctx.output(kShiftGrad).data<float>()));
    }
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    RETURN_IF_ERROR(means_.Reserve(ctx.memory(), static_cast<size_t>(2 * rows.count) * sizeof(float)));
    float* const sum = means_.data<float>();
    float* const products = sum + rows.count;
    const float* const scale = ctx.input(kScale).data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), rows.count,
                            LayerNormRowGradAt{.width = rows.width,
                                               .x = x.data<float>(),
                                               .mean = mean,
                                               .inverse = inverse,
                                               .scale = scale,
                                               .dout = dout,
                                               .sum = sum,
                                               .products = products}));
    return ForEach(ctx.runtime(), x.size(),
                   LayerNormInputAt{.width = rows.width,
                                    .x = x.data<float>(),
                                    .mean = mean,
                                    .inverse = inverse,
                                    .scale = scale,
                                    .sum = sum,
                                    .products = products,
                                    .dout = dout,
                                    .dx = ctx.output(kXGrad).data<float>()});
  }

 private:
  DeviceArray terms_, sums_, means_;
};

REGISTER_DEVICE_KERNEL(layer_norm, MakeDeviceKernel<LayerNormKernel>);
REGISTER_DEVICE_KERNEL(layer_norm_grad, MakeDeviceKernel<LayerNormGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
