// learned_weight: what training minimises in place of a loss whose weight it learns (Kendall et al., Multi-Task
// Learning Using Uncertainty to Weigh Losses), Out = e^-s X + s / 2
//
//   X            [B, 1]  f32   the loss of each sample
//   LogVariance  [1]     f32   s
//   Out          [B, 1]  f32
//
// Gradient (learned_weight_grad): dX = dOut e^-s;  dLogVariance = sum over the samples of dOut (1/2 - e^-s X), in the
// order of ops/fixed_sum.h.
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/reported_loss.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/learned_weight_math.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void WeightedLosses(int64_t n, const float* x, float s, float* out) {
  const float weight = LearnedWeight(s);
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = WeightedLoss(weight, x[i], s);
}

WEIR_VECTORIZED void LossGradients(int64_t n, float s, const float* dout, float* dx) {
  const float weight = LearnedWeight(s);
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = weight * dout[i];
}

WEIR_VECTORIZED float LogVarianceGradient(int64_t n, const float* x, float s, const float* dout) {
  const float weight = LearnedWeight(s);
  return FixedSum(n, [=](int64_t i) { return LogVarianceGrad(weight, x[i], dout[i]); });
}

absl::Status ExpectLoss(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectColumn(ctx, "X"));
  return ExpectDims(ctx, "LogVariance", {1});
}

class LearnedWeightKernel : public OpKernel {
  enum Input { kX, kLogVariance };

 public:
  explicit LearnedWeightKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckTensor("X", x, {x.size(), 1}));
    RETURN_IF_ERROR(CheckTensor("LogVariance", ctx.input(kLogVariance), {1}));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {x.size(), 1});
    WeightedLosses(x.size(), x.data<float>(), ctx.input(kLogVariance).data<float>()[0], out->data<float>());
    return absl::OkStatus();
  }
};

class LearnedWeightGradKernel : public OpKernel {
  enum Input { kX, kLogVariance, kOutGrad };
  enum Output { kXGrad, kLogVarianceGrad };

 public:
  explicit LearnedWeightGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &dout = ctx.input(kOutGrad);
    const int64_t n = x.size();
    RETURN_IF_ERROR(CheckTensor("X", x, {n, 1}));
    RETURN_IF_ERROR(CheckTensor("LogVariance", ctx.input(kLogVariance), {1}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {n, 1}));
    const float s = ctx.input(kLogVariance).data<float>()[0];
    // Before dX, which may share the memory of dOut.
    if (ctx.has_output(kLogVarianceGrad)) {
      Tensor* const ds = ctx.output(kLogVarianceGrad);
      ds->Resize(v1::FLOAT32, {1});
      ds->data<float>()[0] = LogVarianceGradient(n, x.data<float>(), s, dout.data<float>());
    }
    if (ctx.has_output(kXGrad)) {
      const float* const from = dout.data<float>();
      Tensor* const dx = ctx.output(kXGrad);
      dx->Resize(v1::FLOAT32, {n, 1});
      LossGradients(n, s, from, dx->data<float>());
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(learned_weight)
({.type = "learned_weight",
  .summary = "a loss with a weight that is learned, e^-s X + s / 2",
  .inputs = {{"X"}, {"LogVariance"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectLoss(ctx));
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "LogVariance"}, {}, {"Out"}, {"X", "LogVariance"}),
  .cost = ElementwiseCost(2)});

REGISTER_OP(learned_weight_grad)
({.type = "learned_weight_grad",
  .summary = "gradients of learned_weight",
  .inputs = {{"X"}, {"LogVariance"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "LogVariance@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectLoss(ctx));
    RETURN_IF_ERROR(ExpectAlike(ctx, {"X", "Out@GRAD"}));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    if (ctx.OutputCount("LogVariance@GRAD") > 0) SetLike(ctx, "LogVariance@GRAD", "LogVariance");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(4),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(learned_weight, MakeKernel<LearnedWeightKernel>);
REGISTER_KERNEL(learned_weight_grad, MakeKernel<LearnedWeightGradKernel>);
REGISTER_MINIMISED_LOSS(learned_weight)({.op = "learned_weight", .loss = "X"});

}  // namespace
}  // namespace weir
