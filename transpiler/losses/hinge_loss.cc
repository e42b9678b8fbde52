// hinge_loss: scores [B, 1], label in {0, 1}. The prediction is sigmoid(scores).
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::HingeLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.margin() > 0)) return ctx.Error("margin", absl::StrCat("must be positive, got ", m.margin()));
  RETURN_IF_ERROR(AppendLoss(ctx,
                             {.type = "hinge_loss",
                              .x_slot = "X",
                              .x = m.scores(),
                              .x_field = "scores",
                              .label = m.label(),
                              .sample_weight = m.sample_weight(),
                              .attrs = {AttrF("margin", m.margin())}},
                             loss));
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("sigmoid", {{"X", {m.scores()}}}, {{"Out", {loss->prediction()}}}));
}
REGISTER_LOSS(hinge_loss, v1::HingeLoss, Build,
              {.kind = v1::LossDesc::BINARY, .labels = LossFacts::Labels::kTwoClasses});

}  // namespace
}  // namespace weir
