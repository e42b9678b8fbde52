// decay: Out = Grad + l1 sign(Param) + l2 Param
//
//   Param  dense, or the table
//   Grad   shape of Param, or merged selected rows of it: then only those rows decay
//   Out    like Grad, the same variable allowed. An absent gradient stays absent: nothing decays without an update
//   l1, l2  float, not negative
//   columns  of rows of a table (ops/columns.h)
//
// Row form for tables. Arithmetic in ops/gradient_math.h.
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/row_gradient.h"
#include "ops/columns.h"
#include "ops/gradient_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void DecayLoop(float l1, float l2, int64_t n, const float* w, const float* g, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = AddDecay(g[i], w[i], l1, l2);
}

absl::Status DecayShape(InferContext& ctx) {
  const v1::VarDesc& param = ctx.Input("Param");
  const v1::VarDesc& grad = ctx.Input("Grad");
  const bool floats = param.dtype() == v1::FLOAT32 || param.kind() == v1::TABLE;
  if (!floats || grad.dtype() != v1::FLOAT32) return ctx.Error("Param and Grad must be FLOAT32");
  const Shape dims = ctx.InputShape("Param"), grad_dims = ctx.InputShape("Grad");
  const bool rows = grad.kind() == v1::SELECTED_ROWS;
  if (param.kind() == v1::TABLE && !rows) return ctx.Error("Param is a table: Grad must be selected rows");
  const bool fit = rows ? dims.size() == grad_dims.size() && !dims.empty() &&
                              std::equal(dims.begin() + 1, dims.end(), grad_dims.begin() + 1)
                        : dims == grad_dims;
  if (!fit) {
    return ctx.Error(absl::StrCat("Grad ", ShapeString(grad_dims), " does not fit Param ", ShapeString(dims)));
  }
  for (const char* attr : {"l1", "l2"}) {
    if (ctx.attrs().Float(attr) >= 0) continue;
    return ctx.Error(absl::StrCat(attr, " must not be negative, got ", ctx.attrs().Float(attr)));
  }
  RETURN_IF_ERROR(CheckColumns(ctx, param.kind() == v1::TABLE, dims.empty() ? 0 : dims.back()));
  SetLike(ctx, "Out", "Grad");
  return absl::OkStatus();
}

class DecayKernel : public OpKernel {
 public:
  explicit DecayKernel(const KernelInit& init)
      : l1_(static_cast<float>(init.attrs.Float("l1"))), l2_(static_cast<float>(init.attrs.Float("l2"))) {}

  absl::Status Run(KernelContext& ctx) override {
    if (!std::holds_alternative<Tensor>(ctx.input_var(0)) || !ctx.input(0).initialized()) {
      return absl::FailedPreconditionError("Param has no value; run the startup program first");
    }
    const Tensor& param = ctx.input(0);
    const Variable& grad = ctx.input_var(1);
    if (const Tensor* g = std::get_if<Tensor>(&grad)) {
      Tensor* out = ctx.output(0);
      if (!g->initialized()) {
        out->Clear();
        return absl::OkStatus();
      }
      if (g->size() != param.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("Grad ", ShapeString(g->dims()), " does not fit Param ", ShapeString(param.dims())));
      }
      if (out != g) out->Resize(v1::FLOAT32, g->dims());
      DecayLoop(l1_, l2_, g->size(), param.data<float>(), g->data<float>(), out->data<float>());
      return absl::OkStatus();
    }
    return RunRows(param, std::get<SelectedRows>(grad), ctx.OutputAs<SelectedRows>(0));
  }

 private:
  absl::Status RunRows(const Tensor& param, const SelectedRows& grad, SelectedRows* out) const {
    out->CopyRowsOf(grad);
    const int64_t n = static_cast<int64_t>(grad.ids.size());
    if (!grad.present || n == 0) return absl::OkStatus();
    if (!grad.merged && n > 1) return absl::InvalidArgumentError("Grad has rows that are not merged by id");
    const int64_t rows = param.rank() == 0 ? 1 : param.dim(0);
    const int64_t width = rows == 0 ? 0 : param.size() / rows;
    if (!grad.values.initialized() || grad.values.size() != n * width) {
      return absl::InvalidArgumentError(
          absl::StrCat("Grad has ", grad.values.size(), " values; ", n, " rows of width ", width, " need ", n * width));
    }
    if (out != &grad) out->values.Resize(v1::FLOAT32, grad.values.dims());
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = grad.ids[static_cast<size_t>(i)];
      if (id < 0 || id >= rows) {
        return absl::InvalidArgumentError(absl::StrCat("Grad has row ", id, "; Param has rows 0 to ", rows - 1));
      }
      DecayLoop(l1_, l2_, width, param.data<float>() + id * width, grad.values.data<float>() + i * width,
                out->values.data<float>() + i * width);
    }
    return absl::OkStatus();
  }

  const float l1_, l2_;
};

class DecayRows : public RowGradientRule {
 public:
  DecayRows(float l1, float l2) : l1_(l1), l2_(l2) {}
  void Apply(int width, int64_t n, const float* const* rows, float* grads) const override {
    for (int64_t i = 0; i < n; ++i) DecayLoop(l1_, l2_, width, rows[i], grads + i * width, grads + i * width);
  }

 private:
  const float l1_, l2_;
};

REGISTER_OP(decay)
({.type = "decay",
  .summary = "adds l1 sign(w) + l2 w to a gradient",
  .inputs = {{.name = "Param", .kinds = {v1::DENSE, v1::TABLE}},
             {.name = "Grad", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {FloatAttr("l1", 0), FloatAttr("l2", 0), ColumnsAttr()},
  .scope = OpScope::kStep,
  .shape = DecayShape,
  .cost =
      [](InferContext& ctx) {
        double elements = 1;
        for (const int64_t d : ctx.InputShape("Grad")) elements *= static_cast<double>(std::max<int64_t>(d, 1));
        elements *= ColumnsShare(ctx, ctx.InputShape("Grad"));
        return Cost{.flops = 4 * elements, .bytes = 12 * elements};
      },
  .in_place = {{"Grad", "Out"}}});
REGISTER_KERNEL(decay, MakeKernel<DecayKernel>);
REGISTER_ROW_GRADIENT(decay, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowGradientRule>> {
  return std::unique_ptr<RowGradientRule>(
      new DecayRows(static_cast<float>(attrs.Float("l1")), static_cast<float>(attrs.Float("l2"))));
});

}  // namespace
}  // namespace weir
