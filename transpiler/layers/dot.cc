// dot: products of a vector with each of several.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildDot(const v1::Dot& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("x", m.x()));
  RETURN_IF_ERROR(ctx.DenseInput("y", m.y()).status());
  // One slot that is not pooled is [B, 1, W].
  ASSIGN_OR_RETURN(const v1::VarDesc flat, Flatten(ctx, "x", x, ctx.name() + ".x"));
  return ctx.Append(MakeOp("dot", {{"X", {flat.name()}}, {"Y", {m.y()}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_LAYER(dot, v1::Dot, BuildDot);

}  // namespace
}  // namespace weir
