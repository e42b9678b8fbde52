// quantile_loss: input [B, 1]. The prediction is the input.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::QuantileLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.quantile() > 0 && m.quantile() < 1)) {
    return ctx.Error("quantile", absl::StrCat("must be between 0 and 1, got ", m.quantile()));
  }
  loss->set_prediction(m.input());
  return AppendLoss(ctx,
                    {.type = "quantile_loss",
                     .x_slot = "X",
                     .x = m.input(),
                     .x_field = "input",
                     .label = m.label(),
                     .sample_weight = m.sample_weight(),
                     .attrs = {AttrF("quantile", m.quantile())}},
                    loss);
}
REGISTER_LOSS(quantile_loss, v1::QuantileLoss, Build, {.kind = v1::LossDesc::REGRESSION});

}  // namespace
}  // namespace weir
