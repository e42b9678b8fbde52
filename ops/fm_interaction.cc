// fm_interaction: second-order interactions of a factorisation machine
//
//   X    [B, S, W]  f32
//   Sum  [B, W]     f32   sum_s x[b, s, w], kept for the gradient
//   Out  [B, 1]     f32   1/2 sum_w ((sum_s x[b, s, w])^2 - sum_s x[b, s, w]^2)
//
// Gradient: dx[b, s, w] = dout[b] * (Sum[b, w] - x[b, s, w]). Sums over s and over w are taken in order.
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Columns are independent of one another; each adds its slots in order.
WEIR_VECTORIZED void SumSlots(int64_t slots, int64_t width, const float* __restrict x, float* __restrict sum,
                              float* __restrict squares) {
  for (int64_t w = 0; w < width; ++w) {
    sum[w] = 0;
    squares[w] = 0;
  }
  for (int64_t s = 0; s < slots; ++s, x += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) {
      sum[w] += x[w];
      squares[w] += x[w] * x[w];
    }
  }
}

WEIR_VECTORIZED void SlotGradients(int64_t slots, int64_t width, float dout, const float* __restrict sum,
                                   const float* __restrict x, float* __restrict dx) {
  for (int64_t s = 0; s < slots; ++s, x += width, dx += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) dx[w] = dout * (sum[w] - x[w]);
  }
}

class FmInteractionKernel : public OpKernel {
 public:
  explicit FmInteractionKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() != 3) return absl::InvalidArgumentError(absl::StrCat("X must be [B, S, W], got ", ShapeString(x.dims())));
    const int64_t batch = x.dim(0), slots = x.dim(1), width = x.dim(2);
    ctx.output(0)->Resize(v1::FLOAT32, {batch, 1});
    ctx.output(1)->Resize(v1::FLOAT32, {batch, width});
    const float* from = x.data<float>();
    float* out = ctx.output(0)->data<float>();
    float* sum = ctx.output(1)->data<float>();
    std::vector<float> squares(static_cast<size_t>(width));
    for (int64_t b = 0; b < batch; ++b, from += slots * width, sum += width) {
      SumSlots(slots, width, from, sum, squares.data());
      float total = 0;
      for (int64_t w = 0; w < width; ++w) total += sum[w] * sum[w] - squares[static_cast<size_t>(w)];
      out[b] = 0.5f * total;
    }
    return absl::OkStatus();
  }
};

class FmInteractionGradKernel : public OpKernel {
 public:
  explicit FmInteractionGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& sum = ctx.input(1);
    const Tensor& out_grad = ctx.input(2);
    RETURN_IF_ERROR(CheckRank("X", x, 3));
    const int64_t batch = x.dim(0), slots = x.dim(1), width = x.dim(2);
    RETURN_IF_ERROR(CheckTensor("Sum", sum, {batch, width}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", out_grad, {batch, 1}));
    Tensor* x_grad = ctx.output(0);
    x_grad->Resize(v1::FLOAT32, x.dims());
    for (int64_t b = 0; b < batch; ++b) {
      SlotGradients(slots, width, out_grad.data<float>()[b], sum.data<float>() + b * width,
                    x.data<float>() + b * slots * width, x_grad->data<float>() + b * slots * width);
    }
    return absl::OkStatus();
  }
};

Cost FmCost(InferContext& ctx) {
  const double elements = Elements(ctx.Input("X"));
  return {.flops = 3 * elements, .bytes = 4 * elements};
}

REGISTER_OP(fm_interaction)
({.type = "fm_interaction",
  .summary = "second-order interactions of the slots of an example",
  .inputs = {{"X"}},
  .outputs = {{"Out"}, {"Sum"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectDense(ctx, "X"));
    RETURN_IF_ERROR(ExpectRank(ctx, "X", 3));
    const Shape x = ctx.InputShape("X");
    ctx.SetOutput("Out", {x[0], 1});
    ctx.SetOutput("Sum", {x[0], x[2]});
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    if (!ctx.OutputGrad("Sum").empty()) {
      return absl::InvalidArgumentError("fm_interaction: Sum has no gradient of its own; only Out may be used by the model");
    }
    return MakeGradOp(ctx, {"X"}, {"Sum"}, {"Out"}, {"X"});
  },
  .cost = FmCost});

REGISTER_OP(fm_interaction_grad)
({.type = "fm_interaction_grad",
  .summary = "dout * (Sum - x)",
  .inputs = {{"X"}, {"Sum"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectDense(ctx, "X"));
    RETURN_IF_ERROR(ExpectRank(ctx, "X", 3));
    const Shape x = ctx.InputShape("X");
    RETURN_IF_ERROR(ExpectDims(ctx, "Sum", {x[0], x[2]}));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {x[0], 1}));
    SetLike(ctx, "X@GRAD", "X");
    return absl::OkStatus();
  },
  .cost = FmCost,
  .in_place = {{"X", "X@GRAD"}}});

REGISTER_KERNEL(fm_interaction, kCpu, MakeKernel<FmInteractionKernel>);
REGISTER_KERNEL(fm_interaction_grad, kCpu, MakeKernel<FmInteractionGradKernel>);

}  // namespace
}  // namespace weir
