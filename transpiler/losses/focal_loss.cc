// focal_loss: logits [B, 1], label in {0, 1}. The prediction is sigmoid(logits).
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::FocalLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.gamma() >= 0)) return ctx.Error("gamma", absl::StrCat("must not be negative, got ", m.gamma()));
  if (m.has_alpha() && !(m.alpha() >= 0 && m.alpha() <= 1)) {
    return ctx.Error("alpha", absl::StrCat("must be in [0, 1], got ", m.alpha()));
  }
  RETURN_IF_ERROR(AppendLoss(ctx,
                             {.type = "focal_loss",
                              .x_slot = "X",
                              .x = m.logits(),
                              .x_field = "logits",
                              .label = m.label(),
                              .sample_weight = m.sample_weight(),
                              .attrs = {AttrF("gamma", m.gamma()), AttrF("alpha", m.has_alpha() ? m.alpha() : -1)}},
                             loss));
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("sigmoid", {{"X", {m.logits()}}}, {{"Out", {loss->prediction()}}}));
}
REGISTER_LOSS(focal_loss, v1::FocalLoss, Build,
              {.kind = v1::LossDesc::BINARY, .labels = LossFacts::Labels::kTwoClasses});

}  // namespace
}  // namespace weir
