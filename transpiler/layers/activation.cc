// activation: relu, sigmoid, tanh or softmax of a layer. IDENTITY is refused: it would be a layer without an operator.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildActivation(const v1::ActivationLayer& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  if (m.type() == v1::IDENTITY) return ctx.Error("type", "IDENTITY does nothing: use the input itself");
  return AppendActivation(ctx, m.type(), m.input(), ctx.name());
}
REGISTER_LAYER(activation, v1::ActivationLayer, BuildActivation);

}  // namespace
}  // namespace weir
