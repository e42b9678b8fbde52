// weighted_sum: vectors of an example, added with weights: out[b, w] = sum_t weight[b, t] y[b, t, w]
//
//   Weight  [B, T]     f32
//   Y       [B, T, W]  f32
//   Out     [B, W]     f32
//
// Gradient (weighted_sum_grad): dweight[b, t] = dout[b] * y[b, t];  dy[b, t] = weight[b, t] dout[b].
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

// Sets out to [B, W].
absl::Status ExpectWeighted(const InferContext& ctx, Shape* out) {
  RETURN_IF_ERROR(ExpectDense(ctx, "Weight"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Weight", 2));
  RETURN_IF_ERROR(ExpectDense(ctx, "Y"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Y", 3));
  const Shape weight = ctx.InputShape("Weight"), y = ctx.InputShape("Y");
  if (weight[0] != y[0] || weight[1] != y[1] || y[1] < 1 || y[2] < 1) {
    return ctx.Error(absl::StrCat("Y must have a vector for each of the weights ", ShapeString(weight), ", got ",
                                  ShapeString(y), " (variable ", ctx.Input("Y").name(), ")"));
  }
  *out = {y[0], y[2]};
  return absl::OkStatus();
}

absl::StatusOr<VectorSizes> CheckWeighted(const Tensor& weight, const Tensor& y) {
  RETURN_IF_ERROR(CheckRank("Y", y, 3));
  RETURN_IF_ERROR(CheckTensor("Weight", weight, {y.dim(0), y.dim(1)}));
  if (y.dim(1) < 1) return absl::InvalidArgumentError("Y has no vector");
  return VectorSizes{y.dim(0), y.dim(1), y.dim(2)};
}

class WeightedSumKernel : public OpKernel {
 public:
  explicit WeightedSumKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &weight = ctx.input(0), &y = ctx.input(1);
    ASSIGN_OR_RETURN(const VectorSizes n, CheckWeighted(weight, y));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {n.rows, n.width});
    AddWeighed(n, weight.data<float>(), y.data<float>(), out->data<float>());
    return absl::OkStatus();
  }
};

class WeightedSumGradKernel : public OpKernel {
  enum Input { kWeight, kY, kOutGrad };
  enum Output { kWeightGrad, kYGrad };

 public:
  explicit WeightedSumGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &weight = ctx.input(kWeight), &y = ctx.input(kY), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const VectorSizes n, CheckWeighted(weight, y));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {n.rows, n.width}));
    if (ctx.has_output(kWeightGrad)) {
      Tensor* const dweight = ctx.output(kWeightGrad);
      dweight->Resize(v1::FLOAT32, weight.dims());
      MultiplyVectors(n, dout.data<float>(), y.data<float>(), dweight->data<float>());
    }
    if (ctx.has_output(kYGrad)) {
      Tensor* const dy = ctx.output(kYGrad);
      dy->Resize(v1::FLOAT32, y.dims());
      SpreadWeighed(n, weight.data<float>(), dout.data<float>(), dy->data<float>());
    }
    return absl::OkStatus();
  }
};

CostRule WeightedSumCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = 2 * products * Elements(ctx.Input("Y"));
    return cost;
  };
}

void SummedElements(ElementContext& ctx) {
  const ElementAxes& y = ctx.Names("Y");
  if (!y.empty()) ctx.NameOutput("Out", {PrefixAxis(ctx.Output("Out").name(), y.back())});
}

REGISTER_OP(weighted_sum)
({.type = "weighted_sum",
  .summary = "vectors of an example, added with weights",
  .inputs = {{"Weight"}, {"Y"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape out;
    RETURN_IF_ERROR(ExpectWeighted(ctx, &out));
    ctx.SetOutput("Out", out);
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"Weight", "Y"}, {}, {"Out"}, {"Weight", "Y"}),
  .cost = WeightedSumCost(1),
  .elements = SummedElements});
REGISTER_OP(weighted_sum_grad)
({.type = "weighted_sum_grad",
  .summary = "gradients of weighted_sum",
  .inputs = {{"Weight"}, {"Y"}, {"Out@GRAD"}},
  .outputs = {{.name = "Weight@GRAD", .optional = true}, {.name = "Y@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape out;
    RETURN_IF_ERROR(ExpectWeighted(ctx, &out));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
    if (ctx.OutputCount("Weight@GRAD") > 0) SetLike(ctx, "Weight@GRAD", "Weight");
    if (ctx.OutputCount("Y@GRAD") > 0) SetLike(ctx, "Y@GRAD", "Y");
    return absl::OkStatus();
  },
  .cost = WeightedSumCost(2)});

REGISTER_KERNEL(weighted_sum, MakeKernel<WeightedSumKernel>);
REGISTER_KERNEL(weighted_sum_grad, MakeKernel<WeightedSumGradKernel>);

}  // namespace
}  // namespace weir
