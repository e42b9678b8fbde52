// clip: every element of a gradient into [min, max]
//
//   X    dense or selected rows
//   Out  like X, the same variable allowed. An absent gradient stays absent; NaN stays NaN
//   min, max  float
//   columns   of rows of a table (ops/columns.h)
//
// Row form for tables. Arithmetic in ops/gradient_math.h.
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/row_gradient.h"
#include "ops/columns.h"
#include "ops/gradient_math.h"
#include "ops/map_gradient.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void ClipLoop(float min, float max, int64_t n, const float* x, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = ClipToRange(x[i], min, max);
}

class ClipKernel : public OpKernel {
 public:
  explicit ClipKernel(const KernelInit& init)
      : min_(static_cast<float>(init.attrs.Float("min"))), max_(static_cast<float>(init.attrs.Float("max"))) {}

  absl::Status Run(KernelContext& ctx) override {
    MapGradient(ctx, [this](int64_t n, const float* x, float* out) { ClipLoop(min_, max_, n, x, out); });
    return absl::OkStatus();
  }

 private:
  const float min_, max_;
};

class ClipRows : public RowGradientRule {
 public:
  ClipRows(float min, float max) : min_(min), max_(max) {}
  void Apply(int width, int64_t n, const float* const*, float* grads) const override {
    ClipLoop(min_, max_, n * width, grads, grads);
  }

 private:
  const float min_, max_;
};

REGISTER_OP(clip)
({.type = "clip",
  .summary = "every element of a gradient into [min, max]",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {Required(FloatAttr("min", 0)), Required(FloatAttr("max", 0)), ColumnsAttr()},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.Input("X").dtype() != v1::FLOAT32) return ctx.Error("X must be FLOAT32");
    const double min = ctx.attrs().Float("min"), max = ctx.attrs().Float("max");
    if (!(min <= max)) return ctx.Error(absl::StrCat("min must not be above max, got ", min, " and ", max));
    const Shape dims = ctx.InputShape("X");
    // Gradients of tables have no height.
    const bool table = ctx.Input("X").kind() == v1::SELECTED_ROWS && !dims.empty() && dims[0] < 0;
    RETURN_IF_ERROR(CheckColumns(ctx, table, dims.empty() ? 0 : dims.back()));
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(2),
  .in_place = {{"X", "Out"}}});
REGISTER_KERNEL(clip, MakeKernel<ClipKernel>);
REGISTER_ROW_GRADIENT(clip, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowGradientRule>> {
  return std::unique_ptr<RowGradientRule>(
      new ClipRows(static_cast<float>(attrs.Float("min")), static_cast<float>(attrs.Float("max"))));
});

}  // namespace
}  // namespace weir
