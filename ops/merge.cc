// merge: the mean gradient of a step, on servers
//
//   X    sum over the samples of the step; dense or selected rows
//   Out  X / samples, the same variable. An absent gradient stays absent
//
// True division, as in the row form of the optimizers: a row gets the same bits here and there. A step without samples
// has no mean and is never merged.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/map_gradient.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void DivideBy(float divisor, int64_t n, const float* x, float* y) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / divisor;
}

class MergeKernel : public OpKernel {
 public:
  explicit MergeKernel(const KernelInit&) {}

  absl::Status Run(KernelContext& ctx) override {
    if (ctx.step->samples <= 0) {
      return absl::FailedPreconditionError(absl::StrCat("merge at step ", ctx.step->step, " with ", ctx.step->samples,
                                                        " samples; a step without samples changes nothing"));
    }
    const float divisor = static_cast<float>(ctx.step->samples);
    MapGradient(ctx, [divisor](int64_t n, const float* x, float* out) { DivideBy(divisor, n, x, out); });
    return absl::OkStatus();
  }
};

REGISTER_OP(merge)
({.type = "merge",
  .summary = "divides a gradient by the samples of the step",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.Input("X").dtype() != v1::FLOAT32) return ctx.Error("X must be FLOAT32");
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(1),
  .in_place = {{"X", "Out"}}});
REGISTER_KERNEL(merge, MakeKernel<MergeKernel>);

}  // namespace
}  // namespace weir
