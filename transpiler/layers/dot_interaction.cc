// dot_interaction: products of all pairs of the vectors of its inputs (DLRM), [B, S, W] or [B, W] each -> [B, pairs].
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildDotInteraction(const v1::DotInteraction& m, ModelContext& ctx) {
  if (m.input_size() == 0) return ctx.Error("input", "is required");
  for (int i = 0; i < m.input_size(); ++i) RETURN_IF_ERROR(ctx.DenseInput(ElementOf("input", i), m.input(i)).status());
  return ctx.Append(MakeOp("dot_interaction", {{"X", {m.input().begin(), m.input().end()}}}, {{"Out", {ctx.name()}}},
                           {AttrB("self_interaction", m.self_interaction())}));
}
REGISTER_LAYER(dot_interaction, v1::DotInteraction, BuildDotInteraction);

}  // namespace
}  // namespace weir
