// softmax: y[b, c] = e[b, c] / sum_c e[b, c],  e = exp(x - row maximum)
//
//   X    [B, C]  f32
//   Out  [B, C]  f32
//
// Gradient (softmax_grad): dx = y * (dy - sum_c(dy * y)).
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/shape_rules.h"
#include "ops/softmax.h"
#include "ops/vector_math.h"
#include "ops/vectorized.h"

namespace weir {

WEIR_VECTORIZED float SoftmaxRow(int64_t n, const float* x, float* y, float* log_sum) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(x[i] - largest);
  const float sum = FixedSum(n, [y](int64_t i) { return y[i]; });
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / sum;
  *log_sum = Log(sum);
  return largest;
}

namespace {

WEIR_VECTORIZED void SoftmaxGradRow(int64_t n, const float* y, const float* dy, float* dx) {
  const float dot = FixedSum(n, [=](int64_t i) { return dy[i] * y[i]; });
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

absl::Status SoftmaxShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 2));
  const Shape x = ctx.InputShape("X");
  if (x[1] < 1)
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; a row must have a known, positive length"));
  SetLike(ctx, "Out", "X");
  return absl::OkStatus();
}

class SoftmaxKernel : public OpKernel {
 public:
  explicit SoftmaxKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, 2));
    const int64_t rows = x.dim(0), n = x.dim(1);
    Tensor* y = ctx.output(0);
    y->Resize(v1::FLOAT32, {rows, n});
    float log_sum;
    for (int64_t r = 0; r < rows; ++r) SoftmaxRow(n, x.data<float>() + r * n, y->data<float>() + r * n, &log_sum);
    return absl::OkStatus();
  }
};

class SoftmaxGradKernel : public OpKernel {
 public:
  explicit SoftmaxGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& y = ctx.input(0);
    const Tensor& dy = ctx.input(1);
    RETURN_IF_ERROR(CheckRank("Out", y, 2));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dy, y.dims()));
    const int64_t rows = y.dim(0), n = y.dim(1);
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, {rows, n});
    for (int64_t r = 0; r < rows; ++r) {
      SoftmaxGradRow(n, y.data<float>() + r * n, dy.data<float>() + r * n, dx->data<float>() + r * n);
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(softmax)
({.type = "softmax",
  .summary = "exp(x) / sum exp(x) of each row",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .shape = SoftmaxShape,
  .gradient = GradOpRule({}, {"Out"}, {"Out"}, {"X"}),
  .cost = ElementwiseCost(25),
  .in_place = {{"X", "Out"}},
  .elements = SameElements()});
REGISTER_OP(softmax_grad)
({.type = "softmax_grad",
  .summary = "gradient of softmax",
  .inputs = {{"Out"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectRank(ctx, "Out", 2));
    return AlikeRule({"Out", "Out@GRAD"}, "X@GRAD")(ctx);
  },
  .cost = ElementwiseCost(4),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(softmax, MakeKernel<SoftmaxKernel>);
REGISTER_KERNEL(softmax_grad, MakeKernel<SoftmaxGradKernel>);

}  // namespace
}  // namespace weir
