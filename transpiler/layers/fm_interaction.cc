// fm_interaction: 0.5 * sum_w((sum_s x)^2 - sum_s x^2): x [B, S, W] -> [B, 1].
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildFmInteraction(const v1::FmInteraction& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  return ctx.Append(
      MakeOp("fm_interaction", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}, {"Sum", {ctx.name() + ".sum"}}}));
}
REGISTER_LAYER(fm_interaction, v1::FmInteraction, BuildFmInteraction);

}  // namespace
}  // namespace weir
