// fm_interaction and its gradient (ops/fm_interaction.cc).
#include "ops/fm_interaction.h"

#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/fm_interaction_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class FmInteractionKernel : public OpDeviceKernel {
 public:
  explicit FmInteractionKernel(const KernelInit& init) : columns_(init.attrs.Ints("columns")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    ASSIGN_OR_RETURN(const FmSlots of, FmSlotsOf(columns_, x.dims()));
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {1}));
    RETURN_IF_ERROR(ctx.Resize(1, 2, x.lane_rows(), {of.width}));
    RETURN_IF_ERROR(squares_.Reserve(ctx.memory(), static_cast<size_t>(x.rows() * of.width) * sizeof(float)));
    float* const sum = ctx.output(1).data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), x.rows() * of.width,
                            FmSumAt{.x = x.data<float>() + of.begin,
                                    .stride = of.stride,
                                    .slots = of.slots,
                                    .width = of.width,
                                    .sum = sum,
                                    .squares = squares_.data<float>()}));
    return ForEach(
        ctx.runtime(), x.rows(),
        FmOutAt{.sum = sum, .squares = squares_.data<float>(), .width = of.width, .out = ctx.output(0).data<float>()});
  }

 private:
  const std::vector<int64_t> columns_;
  DeviceArray squares_;
};

class FmInteractionGradKernel : public OpDeviceKernel {
  enum Input { kX, kSum, kOutGrad, kOnto };
  enum Output { kXGrad };

 public:
  explicit FmInteractionGradKernel(const KernelInit& init) : columns_(init.attrs.Ints("columns")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckThere("X", x));
    ASSIGN_OR_RETURN(const FmSlots of, FmSlotsOf(columns_, x.dims()));
    RETURN_IF_ERROR(CheckRows("Sum", ctx.input(kSum), x, {of.width}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(kOutGrad), x, {1}));
    const bool onto = ctx.has_input(kOnto);
    if (onto) RETURN_IF_ERROR(CheckLike("Onto", ctx.input(kOnto), x));
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    const FmGradAt slots = {.x = x.data<float>(),
                            .sum = ctx.input(kSum).data<float>(),
                            .dout = ctx.input(kOutGrad).data<float>(),
                            .slots = of.slots,
                            .width = of.width,
                            .dx = ctx.output(kXGrad).data<float>()};
    if (columns_.empty() && !onto) return ForEach(ctx.runtime(), ctx.output(kXGrad).size(), slots);
    return ForEach(ctx.runtime(), ctx.output(kXGrad).size(),
                   FmColumnsGradAt{.of = slots,
                                   .stride = of.stride,
                                   .begin = of.begin,
                                   .onto = onto ? ctx.input(kOnto).data<float>() : nullptr});
  }

 private:
  const std::vector<int64_t> columns_;
};

REGISTER_DEVICE_KERNEL(fm_interaction, MakeDeviceKernel<FmInteractionKernel>);
REGISTER_DEVICE_KERNEL(fm_interaction_grad, MakeDeviceKernel<FmInteractionGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
