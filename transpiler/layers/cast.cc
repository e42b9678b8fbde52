// cast: the same values in another element type.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildCast(const v1::Cast& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  return ctx.Append(MakeOp("cast", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}}, {AttrType("dtype", m.dtype())}));
}
REGISTER_LAYER(cast, v1::Cast, BuildCast);

}  // namespace
}  // namespace weir
