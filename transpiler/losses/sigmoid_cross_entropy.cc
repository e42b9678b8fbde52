// sigmoid_cross_entropy: logits [B, 1], label in {0, 1}. The prediction is sigmoid(logits).
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::SigmoidCrossEntropy& m, ModelContext& ctx, v1::LossDesc* loss) {
  RETURN_IF_ERROR(AppendLoss(ctx,
                             {.type = "sigmoid_cross_entropy_with_logits",
                              .x_slot = "X",
                              .x = m.logits(),
                              .x_field = "logits",
                              .label = m.label(),
                              .sample_weight = m.sample_weight()},
                             loss));
  loss->set_kind(v1::LossDesc::BINARY);
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("sigmoid", {{"X", {m.logits()}}}, {{"Out", {loss->prediction()}}}));
}
REGISTER_LOSS(sigmoid_cross_entropy, v1::SigmoidCrossEntropy, Build);

}  // namespace
}  // namespace weir
