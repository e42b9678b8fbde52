// dot, weighted_sum, their gradients, and known_label (files of the same names in ops/).
#include "framework/base/status_macros.h"
#include "ops/device/dot_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

// Sets the number of Y's vectors of an example.
absl::Status CheckVectors(const DeviceTensor& x, const DeviceTensor& y, int64_t* count) {
  RETURN_IF_ERROR(CheckRank("X", x, 2));
  RETURN_IF_ERROR(CheckThere("Y", y));
  if (y.rank() == 2) {
    *count = 1;
    return CheckLike("Y", y, x);
  }
  RETURN_IF_ERROR(CheckRank("Y", y, 3));
  *count = x.width() == 0 ? 0 : y.width() / x.width();
  return CheckRows("Y", y, x, {*count, x.width()});
}

class DotKernel : public OpDeviceKernel {
 public:
  explicit DotKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(0), &y = ctx.input(1);
    int64_t count = 0;
    RETURN_IF_ERROR(CheckVectors(x, y, &count));
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {count}));
    return ForEach(ctx.runtime(), x.rows() * count,
                   DotAt{.width = x.width(),
                         .count = count,
                         .x = x.data<float>(),
                         .y = y.data<float>(),
                         .out = ctx.output(0).data<float>()});
  }
};

class DotGradKernel : public OpDeviceKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit DotGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &y = ctx.input(kY), &dout = ctx.input(kOutGrad);
    int64_t count = 0;
    RETURN_IF_ERROR(CheckVectors(x, y, &count));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {count}));
    if (ctx.has_output(kXGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), x.size(),
                              DotXGradAt{.width = x.width(),
                                         .count = count,
                                         .y = y.data<float>(),
                                         .dout = dout.data<float>(),
                                         .dx = ctx.output(kXGrad).data<float>()}));
    }
    if (!ctx.has_output(kYGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kYGrad, y));
    return ForEach(ctx.runtime(), y.size(),
                   DotYGradAt{.width = x.width(),
                              .count = count,
                              .x = x.data<float>(),
                              .dout = dout.data<float>(),
                              .dy = ctx.output(kYGrad).data<float>()});
  }
};

class WeightedSumKernel : public OpDeviceKernel {
 public:
  explicit WeightedSumKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &weight = ctx.input(0), &y = ctx.input(1);
    int64_t width = 0;
    RETURN_IF_ERROR(CheckWeighted(weight, y, &width));
    RETURN_IF_ERROR(ctx.Resize(0, 2, y.lane_rows(), {width}));
    return ForEach(ctx.runtime(), y.rows() * width,
                   DotXGradAt{.width = width,
                              .count = weight.width(),
                              .y = y.data<float>(),
                              .dout = weight.data<float>(),
                              .dx = ctx.output(0).data<float>()});
  }

 protected:
  // Sets the floats of one of Y's vectors.
  static absl::Status CheckWeighted(const DeviceTensor& weight, const DeviceTensor& y, int64_t* width) {
    RETURN_IF_ERROR(CheckRank("Weight", weight, 2));
    RETURN_IF_ERROR(CheckRank("Y", y, 3));
    *width = weight.width() == 0 ? 0 : y.width() / weight.width();
    return CheckRows("Y", y, weight, {weight.width(), *width});
  }
};

class WeightedSumGradKernel : public WeightedSumKernel {
  enum Input { kWeight, kY, kOutGrad };
  enum Output { kWeightGrad, kYGrad };

 public:
  using WeightedSumKernel::WeightedSumKernel;
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &weight = ctx.input(kWeight), &y = ctx.input(kY), &dout = ctx.input(kOutGrad);
    int64_t width = 0;
    RETURN_IF_ERROR(CheckWeighted(weight, y, &width));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, weight, {width}));
    if (ctx.has_output(kWeightGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kWeightGrad, weight));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), weight.size(),
                              DotAt{.width = width,
                                    .count = weight.width(),
                                    .x = dout.data<float>(),
                                    .y = y.data<float>(),
                                    .out = ctx.output(kWeightGrad).data<float>()}));
    }
    if (!ctx.has_output(kYGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kYGrad, y));
    return ForEach(ctx.runtime(), y.size(),
                   DotYGradAt{.width = width,
                              .count = weight.width(),
                              .x = dout.data<float>(),
                              .dout = weight.data<float>(),
                              .dy = ctx.output(kYGrad).data<float>()});
  }
};

class KnownLabelKernel : public OpDeviceKernel {
  enum Input { kX, kWeight };
  enum Output { kOut, kMask };

 public:
  explicit KnownLabelKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckThere("X", x));
    if (ctx.has_input(kWeight)) RETURN_IF_ERROR(CheckLike("Weight", ctx.input(kWeight), x));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, x));
    RETURN_IF_ERROR(ctx.ResizeLike(kMask, x));
    return ForEach(ctx.runtime(), x.size(),
                   KnownLabelAt{.x = x.data<float>(),
                                .weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr,
                                .out = ctx.output(kOut).data<float>(),
                                .mask = ctx.output(kMask).data<float>()});
  }
};

REGISTER_DEVICE_KERNEL(dot, MakeDeviceKernel<DotKernel>);
REGISTER_DEVICE_KERNEL(dot_grad, MakeDeviceKernel<DotGradKernel>);
REGISTER_DEVICE_KERNEL(weighted_sum, MakeDeviceKernel<WeightedSumKernel>);
REGISTER_DEVICE_KERNEL(weighted_sum_grad, MakeDeviceKernel<WeightedSumGradKernel>);
REGISTER_DEVICE_KERNEL(known_label, MakeDeviceKernel<KnownLabelKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
