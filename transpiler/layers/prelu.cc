// prelu: [B, .., W] -> the same. Parameter "<layer>.slope" [W], or [1] for all values.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/column_parts.h"

namespace weir {
namespace {

absl::Status BuildPrelu(const v1::Prelu& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const int64_t width, LastWidth(ctx, m.input()));
  if (!std::isfinite(static_cast<float>(m.initial()))) {
    return ctx.Error("initial", absl::StrCat("must be a number, got ", m.initial()));
  }
  ASSIGN_OR_RETURN(const std::string slope, ConstantParameter(ctx, "slope", m.per_column() ? width : 1, m.initial()));
  return ctx.Append(MakeOp("prelu", {{"X", {m.input()}}, {"Slope", {slope}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_LAYER(prelu, v1::Prelu, BuildPrelu);

}  // namespace
}  // namespace weir
