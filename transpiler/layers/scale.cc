// scale: scale * input + bias.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildScale(const v1::Scale& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  return ctx.Append(MakeOp("scale", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}},
                           {AttrF("scale", m.scale()), AttrF("bias", m.bias())}));
}
REGISTER_LAYER(scale, v1::Scale, BuildScale);

}  // namespace
}  // namespace weir
