// cross: the step of a cross network (DCN-v2) behind its product, Out = X0 * Y + X, element by element
//
//   X0   [B, K]  f32   what the network reads
//   Y    [B, K]  f32   X times the weights of the step, plus its bias (fc)
//   X    [B, K]  f32   what the step before gave
//   Out  [B, K]  f32
//
// Gradient (cross_grad): dX0 = dOut * Y, dY = dOut * X0, dX = dOut.
//
// One pass over memory where elementwise_mul and elementwise_add take two, and their gradients three.
#include <cstring>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/cross_math.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void CrossLoop(int64_t n, const float* x0, const float* y, const float* x, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Cross(x0[i], y[i], x[i]);
}

WEIR_VECTORIZED void ProductLoop(int64_t n, const float* dout, const float* other, float* grad) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) grad[i] = dout[i] * other[i];
}

class CrossKernel : public OpKernel {
  enum Input { kX0, kY, kX };
  enum Output { kOut };

 public:
  explicit CrossKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x0 = ctx.input(kX0);
    RETURN_IF_ERROR(CheckTensor("X0", x0, x0.dims()));
    RETURN_IF_ERROR(CheckTensor("Y", ctx.input(kY), x0.dims()));
    RETURN_IF_ERROR(CheckTensor("X", ctx.input(kX), x0.dims()));
    Tensor* out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, x0.dims());
    CrossLoop(x0.size(), x0.data<float>(), ctx.input(kY).data<float>(), ctx.input(kX).data<float>(),
              out->data<float>());
    return absl::OkStatus();
  }
};

class CrossGradKernel : public OpKernel {
  enum Input { kX0, kY, kOutGrad };
  enum Output { kX0Grad, kYGrad, kXGrad };

 public:
  explicit CrossGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x0 = ctx.input(kX0);
    const Tensor& y = ctx.input(kY);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckTensor("X0", x0, x0.dims()));
    RETURN_IF_ERROR(CheckTensor("Y", y, x0.dims()));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, x0.dims()));
    const int64_t n = x0.size();
    const auto grad = [&](int slot) {
      ctx.output(slot)->Resize(v1::FLOAT32, x0.dims());
      return ctx.output(slot)->data<float>();
    };
    if (ctx.has_output(kX0Grad)) ProductLoop(n, dout.data<float>(), y.data<float>(), grad(kX0Grad));
    if (ctx.has_output(kYGrad)) ProductLoop(n, dout.data<float>(), x0.data<float>(), grad(kYGrad));
    // Written last, because it may share the memory of dOut.
    if (ctx.has_output(kXGrad)) {
      float* dx = grad(kXGrad);
      if (n > 0 && dx != dout.data<float>()) std::memcpy(dx, dout.data<float>(), dout.bytes());
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(cross)
({.type = "cross",
  .summary = "X0 * Y + X, a step of a cross network",
  .inputs = {{"X0"}, {"Y"}, {"X"}},
  .outputs = {{"Out"}},
  .shape = AlikeRule({"X0", "Y", "X"}, "Out"),
  .gradient = GradOpRule({"X0", "Y"}, {}, {"Out"}, {"X0", "Y", "X"}),
  .cost = ElementwiseCost(2),
  .in_place = {{"Y", "Out"}, {"X", "Out"}},
  .elements = SameElements("X0"),
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});

REGISTER_OP(cross_grad)
({.type = "cross_grad",
  .summary = "gradients of cross",
  .inputs = {{"X0"}, {"Y"}, {"Out@GRAD"}},
  .outputs = {{.name = "X0@GRAD", .optional = true},
              {.name = "Y@GRAD", .optional = true},
              {.name = "X@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectAlike(ctx, {"X0", "Y", "Out@GRAD"}));
    for (const char* slot : {"X0@GRAD", "Y@GRAD", "X@GRAD"}) {
      if (ctx.OutputCount(slot) > 0) SetLike(ctx, slot, "X0");
    }
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(2),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(cross, MakeKernel<CrossKernel>);
REGISTER_KERNEL(cross_grad, MakeKernel<CrossGradKernel>);

}  // namespace
}  // namespace weir
