#include "ops/loss_shape.h"

#include <string>
#include <utility>

#include "framework/base/status_macros.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"

namespace weir {

absl::Status ExpectColumn(const InferContext& ctx, std::string_view slot) {
  RETURN_IF_ERROR(ExpectDense(ctx, slot));
  const Shape dims = ctx.InputShape(slot);
  if (dims.size() == 2 && dims[1] == 1) return absl::OkStatus();
  return ctx.Error(absl::StrCat(Av(slot), " must be [B, 1], one number per example, got ", ShapeString(dims),
                                " (variable ", ctx.Input(slot).name(), ")"));
}

absl::Status ColumnLossShape(InferContext& ctx, std::string_view x, std::string_view out) {
  RETURN_IF_ERROR(ExpectColumn(ctx, x));
  RETURN_IF_ERROR(ExpectColumn(ctx, "Label"));
  if (ctx.InputCount("Weight") > 0) RETURN_IF_ERROR(ExpectColumn(ctx, "Weight"));
  RETURN_IF_ERROR(ExpectAlike(ctx, {std::string(x), "Label", "Weight"}));
  SetLike(ctx, out, x);
  return absl::OkStatus();
}

ShapeRule ColumnLossGradRule(std::string x, std::string out) {
  return [x = std::move(x), out = std::move(out)](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectColumn(ctx, x));
    RETURN_IF_ERROR(ExpectAlike(ctx, {x, "Label", "Weight", GradName(out)}));
    SetLike(ctx, GradName(x), x);
    return absl::OkStatus();
  };
}

}  // namespace weir
