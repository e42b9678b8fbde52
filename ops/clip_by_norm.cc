// clip_by_norm: g * max_norm / max(max_norm, norm)
//
//   X         a gradient, dense or selected rows
//   Norm      [1] float64, from whole_norm: of this gradient, or of all gradients of a group
//   Out       like X, the same variable allowed. An absent gradient stays absent
//   max_norm  float, positive
//
// On rows of a table the server multiplies by the same factor. Arithmetic in ops/norm_math.h.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/map_gradient.h"
#include "ops/norm_math.h"
#include "ops/norm_update.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void Multiply(float factor, int64_t n, const float* x, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

class ClipByNormKernel : public OpKernel {
 public:
  explicit ClipByNormKernel(const KernelInit& init) : max_norm_(init.attrs.Float("max_norm")) {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const double norm, ReadNorm(ctx, 1, "Norm"));
    const float factor = ClipFactor(norm, max_norm_);
    MapGradient(ctx, [factor](int64_t n, const float* x, float* out) { Multiply(factor, n, x, out); });
    return absl::OkStatus();
  }

 private:
  const double max_norm_;
};

REGISTER_OP(clip_by_norm)
({.type = "clip_by_norm",
  .summary = "bounds the norm of a gradient",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}, {.name = "Norm"}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {Required(FloatAttr("max_norm", 0))},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.Input("X").dtype() != v1::FLOAT32) return ctx.Error("X must be FLOAT32");
    if (ctx.Input("Norm").dtype() != v1::FLOAT64 || ctx.InputShape("Norm") != Shape{1}) {
      return ctx.Error("Norm must be FLOAT64 [1], the output of whole_norm");
    }
    if (!(ctx.attrs().Float("max_norm") > 0)) {
      return ctx.Error(absl::StrCat("max_norm must be positive, got ", ctx.attrs().Float("max_norm")));
    }
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(1),
  .in_place = {{"X", "Out"}}});
REGISTER_KERNEL(clip_by_norm, MakeKernel<ClipByNormKernel>);

}  // namespace
}  // namespace weir
