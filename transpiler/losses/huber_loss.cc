// huber_loss: input [B, 1]. The prediction is the input.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::HuberLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.delta() > 0)) return ctx.Error("delta", absl::StrCat("must be positive, got ", m.delta()));
  loss->set_prediction(m.input());
  return AppendLoss(ctx,
                    {.type = "huber_loss",
                     .x_slot = "X",
                     .x = m.input(),
                     .x_field = "input",
                     .label = m.label(),
                     .sample_weight = m.sample_weight(),
                     .attrs = {AttrF("delta", m.delta())}},
                    loss);
}
REGISTER_LOSS(huber_loss, v1::HuberLoss, Build, {.kind = v1::LossDesc::REGRESSION});

}  // namespace
}  // namespace weir
