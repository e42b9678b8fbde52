// dot: products of a vector with each of several: out[b, t] = sum_w x[b, w] y[b, t, w]
//
//   X    [B, W]              f32
//   Y    [B, T, W] or [B, W]  f32
//   Out  [B, T] or [B, 1]     f32
//
// Gradient (dot_grad): dx[b] = sum_t dout[b, t] y[b, t], in the order of t;  dy[b, t] = dout[b, t] x[b].
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vector_products.h"

namespace weir {
namespace {

// Sets out to [B, T].
absl::Status ExpectVectors(const InferContext& ctx, Shape* out) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 2));
  RETURN_IF_ERROR(ExpectDense(ctx, "Y"));
  const Shape x = ctx.InputShape("X"), y = ctx.InputShape("Y");
  if (x[1] < 1) return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; its width must be known"));
  const bool fits = (y.size() == 2 || y.size() == 3) && y[0] == x[0] && y.back() == x[1] && (y.size() == 2 || y[1] > 0);
  if (!fits) {
    return ctx.Error(absl::StrCat("Y must be vectors of the width of X, [", x[0], ", T, ", x[1], "] or ",
                                  ShapeString(x), ", got ", ShapeString(y), " (variable ", ctx.Input("Y").name(), ")"));
  }
  *out = {x[0], y.size() == 3 ? y[1] : 1};
  return absl::OkStatus();
}

absl::StatusOr<VectorSizes> CheckVectors(const Tensor& x, const Tensor& y) {
  RETURN_IF_ERROR(CheckRank("X", x, 2));
  const int64_t count = y.rank() == 3 ? y.dim(1) : 1;
  const Shape wanted = y.rank() == 3 ? Shape{x.dim(0), count, x.dim(1)} : Shape{x.dim(0), x.dim(1)};
  RETURN_IF_ERROR(CheckTensor("Y", y, wanted));
  return VectorSizes{x.dim(0), count, x.dim(1)};
}

class DotKernel : public OpKernel {
 public:
  explicit DotKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &y = ctx.input(1);
    ASSIGN_OR_RETURN(const VectorSizes n, CheckVectors(x, y));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {n.rows, n.count});
    MultiplyVectors(n, x.data<float>(), y.data<float>(), out->data<float>());
    return absl::OkStatus();
  }
};

class DotGradKernel : public OpKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit DotGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &y = ctx.input(kY), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const VectorSizes n, CheckVectors(x, y));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {n.rows, n.count}));
    if (ctx.has_output(kXGrad)) {
      Tensor* const dx = ctx.output(kXGrad);
      dx->Resize(v1::FLOAT32, x.dims());
      AddWeighed(n, dout.data<float>(), y.data<float>(), dx->data<float>());
    }
    if (ctx.has_output(kYGrad)) {
      Tensor* const dy = ctx.output(kYGrad);
      dy->Resize(v1::FLOAT32, y.dims());
      SpreadWeighed(n, dout.data<float>(), x.data<float>(), dy->data<float>());
    }
    return absl::OkStatus();
  }
};

CostRule DotCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = 2 * products * Elements(ctx.Input("Y"));
    return cost;
  };
}

// The product with a vector has its name, behind that of the products.
void ProductElements(ElementContext& ctx) {
  const ElementAxes& y = ctx.Names("Y");
  if (y.size() != 2) return OwnElements()(ctx);
  ctx.NameOutput("Out", {PrefixAxis(ctx.Output("Out").name(), y.front())});
}

REGISTER_OP(dot)
({.type = "dot",
  .summary = "products of a vector with each of several",
  .inputs = {{"X"}, {"Y"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape out;
    RETURN_IF_ERROR(ExpectVectors(ctx, &out));
    ctx.SetOutput("Out", out);
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "Y"}, {}, {"Out"}, {"X", "Y"}),
  .cost = DotCost(1),
  .elements = ProductElements,
  .effect = ElementEffect::kMultiplied,
  .zero_of_zero = true});
REGISTER_OP(dot_grad)
({.type = "dot_grad",
  .summary = "gradients of dot",
  .inputs = {{"X"}, {"Y"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "Y@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape out;
    RETURN_IF_ERROR(ExpectVectors(ctx, &out));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    if (ctx.OutputCount("Y@GRAD") > 0) SetLike(ctx, "Y@GRAD", "Y");
    return absl::OkStatus();
  },
  .cost = DotCost(2)});

REGISTER_KERNEL(dot, MakeKernel<DotKernel>);
REGISTER_KERNEL(dot_grad, MakeKernel<DotGradKernel>);

}  // namespace
}  // namespace weir
