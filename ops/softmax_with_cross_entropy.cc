// softmax_with_cross_entropy: loss = weight * -log softmax(logits)[label], from the logits, so that no probability
// underflows.
//
//   Logits   [B, C]  f32
//   Label    [B, 1]  f32 or int64: a class in [0, C)
//   Weight?  [B, 1]  f32
//   Softmax  [B, C]  f32
//   Loss     [B, 1]  f32
//
// A label outside of [0, C) is an error that names the example. Gradient, from Loss alone:
//   dlogits = dloss * weight * (softmax - [c is the label]).
#include <cmath>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/softmax.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Label (a class) and, if given, Weight are columns as long as `scores`, [B, C].
absl::Status ExpectLabels(InferContext& ctx, std::string_view scores_slot) {
  RETURN_IF_ERROR(ExpectDense(ctx, scores_slot));
  RETURN_IF_ERROR(ExpectRank(ctx, scores_slot, 2));
  const Shape scores = ctx.InputShape(scores_slot), label = ctx.InputShape("Label");
  if (scores[1] < 1) {
    return ctx.Error(
        absl::StrCat(Av(scores_slot), " has dims ", ShapeString(scores), "; the number of classes must be known"));
  }
  const v1::VarDesc& label_var = ctx.Input("Label");
  if (label_var.kind() != v1::DENSE || (label_var.dtype() != v1::FLOAT32 && label_var.dtype() != v1::INT64)) {
    return ctx.Error(absl::StrCat("Label (", label_var.name(), ") must be dense FLOAT32 or INT64, got ",
                                  v1::VarKind_Name(label_var.kind()), " ", v1::DType_Name(label_var.dtype())));
  }
  const Shape column = {scores[0], 1};
  if (label != column) {
    return ctx.Error(
        absl::StrCat("Label must be ", ShapeString(column), ", one class per example, got ", ShapeString(label)));
  }
  if (ctx.InputCount("Weight") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Weight", column));
  return absl::OkStatus();
}

absl::Status Shapes(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectLabels(ctx, "Logits"));
  const Shape column = {ctx.InputShape("Logits")[0], 1};
  SetLike(ctx, "Softmax", "Logits");
  ctx.SetOutput("Loss", column);
  return absl::OkStatus();
}

absl::Status GradShapes(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectLabels(ctx, "Softmax"));
  RETURN_IF_ERROR(ExpectDims(ctx, "Loss@GRAD", {ctx.InputShape("Softmax")[0], 1}));
  SetLike(ctx, "Logits@GRAD", "Softmax");
  return absl::OkStatus();
}

// Checks the tensors of one run; `weight` may be null.
absl::Status CheckLabels(const Tensor& label, const Tensor* weight, int64_t rows) {
  const DType dtype = label.dtype() == v1::INT64 ? v1::INT64 : v1::FLOAT32;
  RETURN_IF_ERROR(CheckTensor("Label", label, {rows, 1}, dtype));
  return weight == nullptr ? absl::OkStatus() : CheckTensor("Weight", *weight, {rows, 1});
}

absl::StatusOr<int64_t> ClassOf(const Tensor& label, int64_t example, int64_t classes) {
  if (label.dtype() == v1::INT64) {
    const int64_t c = label.data<int64_t>()[example];
    if (c >= 0 && c < classes) return c;
    return absl::InvalidArgumentError(
        absl::StrCat("Label of example ", example, " is ", c, "; it must be a class in [0, ", classes, ")"));
  }
  const float c = label.data<float>()[example];
  if (c >= 0 && c < static_cast<float>(classes) && std::floor(c) == c) return static_cast<int64_t>(c);
  return absl::InvalidArgumentError(absl::StrCat("Label of example ", example, " is ", c,
                                                 "; it must be a class, a whole number in [0, ", classes, ")"));
}

class SoftmaxCrossEntropyKernel : public OpKernel {
  enum Input { kLogits, kLabel, kWeight };
  enum Output { kSoftmax, kLoss };

 public:
  explicit SoftmaxCrossEntropyKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(kLogits);
    const Tensor& label = ctx.input(kLabel);
    RETURN_IF_ERROR(CheckRank("Logits", logits, 2));
    RETURN_IF_ERROR(CheckLabels(label, ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr, logits.dim(0)));
    const float* weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr;
    const int64_t rows = logits.dim(0), classes = logits.dim(1);
    Tensor* softmax = ctx.output(kSoftmax);
    Tensor* loss = ctx.output(kLoss);
    softmax->Resize(v1::FLOAT32, {rows, classes});
    loss->Resize(v1::FLOAT32, {rows, 1});
    for (int64_t r = 0; r < rows; ++r) {
      ASSIGN_OR_RETURN(const int64_t c, ClassOf(label, r, classes));
      const float* x = logits.data<float>() + r * classes;
      float log_sum;
      const float largest = SoftmaxRow(classes, x, softmax->data<float>() + r * classes, &log_sum);
      const float value = log_sum - (x[c] - largest);
      loss->data<float>()[r] = weight == nullptr ? value : value * weight[r];
    }
    return absl::OkStatus();
  }
};

WEIR_VECTORIZED void ScaleRow(int64_t n, const float* softmax, float factor, float* dx) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = softmax[i] * factor;
}

class SoftmaxCrossEntropyGradKernel : public OpKernel {
  enum Input { kLabel, kWeight, kSoftmax, kLossGrad };
  enum Output { kLogitsGrad };

 public:
  explicit SoftmaxCrossEntropyGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& label = ctx.input(kLabel);
    const Tensor& softmax = ctx.input(kSoftmax);
    RETURN_IF_ERROR(CheckRank("Softmax", softmax, 2));
    RETURN_IF_ERROR(CheckLabels(label, ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr, softmax.dim(0)));
    RETURN_IF_ERROR(CheckTensor("Loss@GRAD", ctx.input(kLossGrad), {softmax.dim(0), 1}));
    const float* weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr;
    const float* dloss = ctx.input(kLossGrad).data<float>();
    const int64_t rows = softmax.dim(0), classes = softmax.dim(1);
    Tensor* dlogits = ctx.output(kLogitsGrad);
    dlogits->Resize(v1::FLOAT32, {rows, classes});
    for (int64_t r = 0; r < rows; ++r) {
      ASSIGN_OR_RETURN(const int64_t c, ClassOf(label, r, classes));
      const float factor = weight == nullptr ? dloss[r] : dloss[r] * weight[r];
      const float* p = softmax.data<float>() + r * classes;
      float* dx = dlogits->data<float>() + r * classes;
      const float at_label = (p[c] - 1.0f) * factor;
      ScaleRow(classes, p, factor, dx);
      dx[c] = at_label;
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::vector<v1::OpDesc>> Gradient(GradContext& ctx) {
  if (!ctx.OutputGrad("Softmax").empty()) {
    return absl::InvalidArgumentError(
        "softmax_with_cross_entropy: no gradient flows through Softmax; use softmax for what is computed from it");
  }
  return MakeGradOp(ctx, {"Label", "Weight"}, {"Softmax"}, {"Loss"}, {"Logits"});
}

REGISTER_OP(softmax_with_cross_entropy)
({.type = "softmax_with_cross_entropy",
  .summary = "-log softmax(logits)[label], per example",
  .inputs = {{"Logits"}, {"Label"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Softmax"}, {"Loss"}},
  .shape = Shapes,
  .gradient = Gradient,
  .cost = ElementwiseCost(25),
  .in_place = {}});
REGISTER_OP(softmax_with_cross_entropy_grad)
({.type = "softmax_with_cross_entropy_grad",
  .summary = "dloss * weight * (softmax - [class is the label])",
  .inputs = {{"Label"}, {.name = "Weight", .optional = true}, {"Softmax"}, {"Loss@GRAD"}},
  .outputs = {{"Logits@GRAD"}},
  .shape = GradShapes,
  .cost = ElementwiseCost(2),
  .in_place = {{"Softmax", "Logits@GRAD"}}});

REGISTER_KERNEL(softmax_with_cross_entropy, MakeKernel<SoftmaxCrossEntropyKernel>);
REGISTER_KERNEL(softmax_with_cross_entropy_grad, MakeKernel<SoftmaxCrossEntropyGradKernel>);

}  // namespace
}  // namespace weir
