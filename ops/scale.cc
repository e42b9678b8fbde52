// scale: Out = X * scale + bias.
//
//   X      any shape, dense f32; or selected rows (then without bias)
//   Out    like X; absent when X is absent
//   scale  float = 1
//   bias   float = 0
//
// Gradient: scale of dOut, without bias.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/elementwise_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void ScaleLoop(int64_t n, const float* x, float scale, float bias, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Scale(x[i], scale, bias);
}

// Multiplies without adding a bias of 0, which would turn -0.0 into 0.0.
WEIR_VECTORIZED void MultiplyLoop(int64_t n, const float* x, float scale, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale;
}

absl::Status ScaleShape(InferContext& ctx) {
  const v1::VarDesc& x = ctx.Input("X");
  if (x.kind() != v1::SELECTED_ROWS) {
    RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  } else if (ctx.attrs().Float("bias") != 0) {
    return ctx.Error(absl::StrCat("X (", x.name(),
                                  ") is selected rows, to whose missing rows no bias can be added; bias must "
                                  "be 0, got ",
                                  ctx.attrs().Float("bias")));
  }
  SetLike(ctx, "Out", "X");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::OpDesc>> ScaleGradient(GradContext& ctx) {
  const std::string dx = ctx.InputGrad("X");
  if (dx.empty()) return std::vector<v1::OpDesc>();
  return std::vector<v1::OpDesc>{
      MakeOp("scale", {{"X", {ctx.OutputGrad("Out")}}}, {{"Out", {dx}}}, {AttrF("scale", ctx.attrs().Float("scale"))})};
}

class ScaleKernel : public OpKernel {
 public:
  explicit ScaleKernel(const KernelInit& init)
      : scale_(static_cast<float>(init.attrs.Float("scale"))), bias_(static_cast<float>(init.attrs.Float("bias"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Variable& x = ctx.input_var(0);
    if (const SelectedRows* rows = std::get_if<SelectedRows>(&x)) {
      SelectedRows* out = ctx.OutputAs<SelectedRows>(0);
      out->CopyRowsOf(*rows);
      if (rows->present) Run(rows->values, &out->values);
      return absl::OkStatus();
    }
    Run(ctx.input(0), ctx.output(0));
    return absl::OkStatus();
  }

 private:
  void Run(const Tensor& x, Tensor* out) const {
    if (!x.initialized()) {
      out->Clear();
      return;
    }
    out->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    if (bias_ == 0) {
      MultiplyLoop(x.size(), x.data<float>(), scale_, out->data<float>());
    } else {
      ScaleLoop(x.size(), x.data<float>(), scale_, bias_, out->data<float>());
    }
  }

  const float scale_;
  const float bias_;
};

REGISTER_OP(scale)
({.type = "scale",
  .summary = "x * scale + bias",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {FloatAttr("scale", 1), FloatAttr("bias", 0)},
  .shape = ScaleShape,
  .gradient = ScaleGradient,
  .cost = ElementwiseCost(2),
  .in_place = {{"X", "Out"}},
  .loss_form = LossForm::kWeightedSum,
  .elements = SameElements(),
  .effect = ElementEffect::kApart});

REGISTER_KERNEL(scale, MakeKernel<ScaleKernel>);

}  // namespace
}  // namespace weir
