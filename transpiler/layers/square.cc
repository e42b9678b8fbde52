// square: input * input.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildSquare(const v1::Input& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  return ctx.Append(MakeOp("square", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_LAYER(square, v1::Input, BuildSquare);

}  // namespace
}  // namespace weir
