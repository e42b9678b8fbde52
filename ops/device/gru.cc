// gru and its gradient (ops/gru.cc). All examples take as many steps as a sequence may be long; the products of the
// elements with W, and the gradients of parameters, are one product for all steps.
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/column_sums.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/gru_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"
#include "ops/device/sequence_operands.h"

namespace weir {
namespace device {
namespace {

class Gru : public OpDeviceKernel {
 protected:
  enum Input { kX, kLength, kW, kU, kB, kC };

  // Reads the sizes, and checks the operands that forward and backward have in common.
  absl::Status ReadSizes(DeviceKernelContext& ctx) {
    const DeviceTensor& x = ctx.input(kX);
    RETURN_IF_ERROR(sequences_.Read(ctx, "X", x, kLength));
    RETURN_IF_ERROR(CheckRank("U", ctx.input(kU), 2));
    size_ = ctx.input(kU).rows(0);
    three_ = 3 * size_;
    RETURN_IF_ERROR(CheckShared("U", ctx.input(kU), {size_, three_}));
    RETURN_IF_ERROR(CheckShared("W", ctx.input(kW), {sequences_.width, three_}));
    RETURN_IF_ERROR(CheckShared("B", ctx.input(kB), {three_}));
    RETURN_IF_ERROR(CheckShared("C", ctx.input(kC), {three_}));
    elements_ = sequences_.batch * sequences_.most;
    lane_elements_ = x.lane_rows();
    for (int64_t& rows : lane_elements_) rows *= sequences_.most;
    return absl::OkStatus();
  }
  GruStep StepOf(int64_t t) const {
    return {.most = sequences_.most, .size = size_, .t = t, .length = sequences_.lengths()};
  }
  absl::Status Reserve(DeviceKernelContext& ctx, int64_t floats) {
    return memory_.Reserve(ctx.memory(), static_cast<size_t>(floats) * sizeof(float));
  }
  absl::Status Clear(DeviceKernelContext& ctx, int64_t n, float* x) {
    return ForEach(ctx.runtime(), n, FillAt{.value = 0.0f, .out = x});
  }

  Sequences sequences_;
  int64_t size_ = 0, three_ = 0, elements_ = 0;
  std::vector<int64_t> lane_elements_;
  DeviceArray memory_;
};

class GruKernel : public Gru {
  enum Output { kHidden, kLast, kGates };

 public:
  explicit GruKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(ReadSizes(ctx));
    const DeviceTensor& x = ctx.input(kX);
    const int64_t batch = sequences_.batch, most = sequences_.most;
    RETURN_IF_ERROR(ctx.Resize(kHidden, 3, x.lane_rows(), {most, size_}));
    RETURN_IF_ERROR(ctx.Resize(kLast, 2, x.lane_rows(), {size_}));
    RETURN_IF_ERROR(ctx.Resize(kGates, 3, x.lane_rows(), {most, 4 * size_}));
    RETURN_IF_ERROR(Reserve(ctx, (elements_ + batch) * three_));
    float *const xw = memory_.data<float>(), *const hu = xw + elements_ * three_;
    float* const state = ctx.output(kLast).data<float>();
    RETURN_IF_ERROR(Clear(ctx, batch * size_, state));
    RETURN_IF_ERROR(MultiplyRows(ctx, lane_elements_, x.data<float>(), ctx.input(kW).data<float>(), false,
                                 sequences_.width, three_, xw));
    for (int64_t t = 0; t < most; ++t) {
      RETURN_IF_ERROR(MultiplyRows(ctx, x.lane_rows(), state, ctx.input(kU).data<float>(), false, size_, three_, hu));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), batch * size_,
                              GruStepAt{.step = StepOf(t),
                                        .xw = xw,
                                        .hu = hu,
                                        .b = ctx.input(kB).data<float>(),
                                        .c = ctx.input(kC).data<float>(),
                                        .gates = ctx.output(kGates).data<float>(),
                                        .state = state,
                                        .hidden = ctx.output(kHidden).data<float>()}));
    }
    return absl::OkStatus();
  }
};

class GruGradKernel : public Gru {
  enum GradInput { kHidden = kC + 1, kGates, kHiddenGrad, kLastGrad };
  enum Output { kXGrad, kWGrad, kUGrad, kBGrad, kCGrad };

 public:
  explicit GruGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(ReadSizes(ctx));
    const DeviceTensor& x = ctx.input(kX);
    const int64_t batch = sequences_.batch, most = sequences_.most, width = sequences_.width;
    RETURN_IF_ERROR(CheckRows("Hidden", ctx.input(kHidden), x, {most, size_}));
    RETURN_IF_ERROR(CheckRows("Gates", ctx.input(kGates), x, {most, 4 * size_}));
    if (ctx.has_input(kHiddenGrad)) {
      RETURN_IF_ERROR(CheckRows("Hidden@GRAD", ctx.input(kHiddenGrad), x, {most, size_}));
    }
    if (ctx.has_input(kLastGrad)) RETURN_IF_ERROR(CheckRows("Last@GRAD", ctx.input(kLastGrad), x, {size_}));
    RETURN_IF_ERROR(Reserve(ctx, elements_ * (2 * three_ + size_ + width) + batch * (three_ + 2 * size_)));
    float *const dxw = memory_.data<float>(), *const dhu = dxw + elements_ * three_;
    float *const before = dhu + elements_ * three_, *const xs = before + elements_ * size_;
    float *const dh_step = xs + elements_ * width, *const dstate = dh_step + batch * three_;
    float* const through = dstate + batch * size_;
    RETURN_IF_ERROR(Clear(ctx, batch * size_, dstate));
    const auto data = [&](int slot) { return ctx.has_input(slot) ? ctx.input(slot).data<float>() : nullptr; };
    for (int64_t t = most; t-- > 0;) {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), batch * size_,
                              GruStepGradAt{.step = StepOf(t),
                                            .gates = data(kGates),
                                            .hidden = data(kHidden),
                                            .dhidden = data(kHiddenGrad),
                                            .dlast = data(kLastGrad),
                                            .through = t + 1 == most ? nullptr : through,
                                            .dstate = dstate,
                                            .dxw = dxw,
                                            .dhu = dhu,
                                            .dh_step = dh_step,
                                            .before = before}));
      if (t == 0) break;  // the state before is no variable
      RETURN_IF_ERROR(
          MultiplyRows(ctx, x.lane_rows(), dh_step, ctx.input(kU).data<float>(), true, three_, size_, through));
    }
    RETURN_IF_ERROR(ForEach(
        ctx.runtime(), elements_ * width,
        GruElementAt{.most = most, .width = width, .length = sequences_.lengths(), .x = x.data<float>(), .to = xs}));
    RETURN_IF_ERROR(OfMatrix(ctx, kWGrad, kBGrad, xs, width, dxw, &w_sums_));
    RETURN_IF_ERROR(OfMatrix(ctx, kUGrad, kCGrad, before, size_, dhu, &u_sums_));
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return MultiplyRows(ctx, lane_elements_, dxw, ctx.input(kW).data<float>(), true, three_, width,
                        ctx.output(kXGrad).data<float>());
  }

 private:
  // Gradients of a matrix that multiplies rows of k values, and of its bias.
  absl::Status OfMatrix(DeviceKernelContext& ctx, int matrix, int bias, const float* rows, int64_t k, const float* d,
                        DeviceArray* sums) {
    const size_t lanes = lane_elements_.size();
    if (ctx.has_output(matrix)) {
      RETURN_IF_ERROR(ctx.Resize(matrix, 2, std::vector<int64_t>(lanes, k), {three_}));
      RETURN_IF_ERROR(
          MultiplyColumns(ctx, lane_elements_, rows, d, k, three_, ctx.output(matrix).data<float>()).status());
    }
    if (!ctx.has_output(bias)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.Resize(bias, 1, std::vector<int64_t>(lanes, three_), {}));
    LaneRows of_lanes = RowsOf(ctx.input(kX));
    for (int l = 1; l <= of_lanes.lanes; ++l) of_lanes.begin[l] *= sequences_.most;
    return SumColumns(ctx, d, of_lanes, three_, sums, ctx.output(bias).data<float>());
  }

  DeviceArray w_sums_, u_sums_;
};

REGISTER_DEVICE_KERNEL(gru, MakeDeviceKernel<GruKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(gru_grad, MakeDeviceKernel<GruGradKernel>, {"Length"});

}  // namespace
}  // namespace device
}  // namespace weir
