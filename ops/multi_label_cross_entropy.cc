// multi_label_cross_entropy: mean over the classes of the binary cross entropy of their logits; every class is true or
// not by itself.
//
//   X        [B, C]  f32, logits
//   Label    [B, C]  f32, probabilities (0 or 1)
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/ordered_sum.h"
#include "ops/row_loss_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

absl::Status ExpectClasses(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 2));
  const Shape x = ctx.InputShape("X");
  if (x[1] < 1) {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; the number of classes must be known"));
  }
  RETURN_IF_ERROR(ExpectDims(ctx, "Label", x));
  return ctx.InputCount("Weight") > 0 ? ExpectDims(ctx, "Weight", {x[0], 1}) : absl::OkStatus();
}

absl::Status CheckClasses(const Tensor& x, const Tensor& label, const Tensor* weight, const Tensor* out_grad) {
  RETURN_IF_ERROR(CheckRank("X", x, 2));
  if (x.dim(1) < 1) return absl::InvalidArgumentError("X has no column");
  RETURN_IF_ERROR(CheckTensor("Label", label, x.dims()));
  if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", *weight, {x.dim(0), 1}));
  return out_grad == nullptr ? absl::OkStatus() : CheckTensor("Out@GRAD", *out_grad, {x.dim(0), 1});
}

WEIR_VECTORIZED float RowLoss(int64_t n, const float* x, const float* label) {
  return MultiLabelMath{}.Loss(OrderedSum(), n, x, label);
}
WEIR_VECTORIZED void RowDx(int64_t n, const float* x, const float* label, float dloss, float* dx) {
  const MultiLabelMath math{};
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = math.Dx(n, x[i], label[i], dloss);
}

class MultiLabelKernel : public OpKernel {
  enum Input { kX, kLabel, kWeight };

 public:
  explicit MultiLabelKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &label = ctx.input(kLabel);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckClasses(x, label, weight, nullptr));
    const int64_t rows = x.dim(0), n = x.dim(1);
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {rows, 1});
    for (int64_t r = 0; r < rows; ++r) {
      const float loss = RowLoss(n, x.data<float>() + r * n, label.data<float>() + r * n);
      out->data<float>()[r] = weight == nullptr ? loss : loss * weight->data<float>()[r];
    }
    return absl::OkStatus();
  }
};

class MultiLabelGradKernel : public OpKernel {
  enum Input { kX, kLabel, kWeight, kOutGrad };

 public:
  explicit MultiLabelGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &label = ctx.input(kLabel), &dout = ctx.input(kOutGrad);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckClasses(x, label, weight, &dout));
    const int64_t rows = x.dim(0), n = x.dim(1);
    Tensor* const dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, {rows, n});
    for (int64_t r = 0; r < rows; ++r) {
      const float dloss = dout.data<float>()[r] * (weight == nullptr ? 1.0f : weight->data<float>()[r]);
      RowDx(n, x.data<float>() + r * n, label.data<float>() + r * n, dloss, dx->data<float>() + r * n);
    }
    return absl::OkStatus();
  }
};

CostRule PerClass(double flops) {
  return [flops](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = flops * Elements(ctx.Input("X"));
    return cost;
  };
}

REGISTER_OP(multi_label_cross_entropy)
({.type = "multi_label_cross_entropy",
  .summary = "mean over the classes of their binary cross entropies",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectClasses(ctx));
    ctx.SetOutput("Out", {ctx.InputShape("X")[0], 1});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "Label", "Weight"}, {}, {"Out"}, {"X"}),
  .cost = PerClass(55)});
REGISTER_OP(multi_label_cross_entropy_grad)
({.type = "multi_label_cross_entropy_grad",
  .summary = "gradient of multi_label_cross_entropy",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectClasses(ctx));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {ctx.InputShape("X")[0], 1}));
    SetLike(ctx, "X@GRAD", "X");
    return absl::OkStatus();
  },
  .cost = PerClass(25)});

REGISTER_KERNEL(multi_label_cross_entropy, MakeKernel<MultiLabelKernel>);
REGISTER_KERNEL(multi_label_cross_entropy_grad, MakeKernel<MultiLabelGradKernel>);

}  // namespace
}  // namespace weir
