// log_loss: -label log(p + epsilon) - (1 - label) log(1 - p + epsilon). The prediction is p.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::LogLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.epsilon() >= 0 && m.epsilon() < 0.5)) {
    return ctx.Error("epsilon", absl::StrCat("must be in [0, 0.5), got ", m.epsilon()));
  }
  loss->set_prediction(m.probability());
  return AppendLoss(ctx,
                    {.type = "log_loss",
                     .x_slot = "Predicted",
                     .x = m.probability(),
                     .x_field = "probability",
                     .label = m.label(),
                     .sample_weight = m.sample_weight(),
                     .loss_slot = "Loss",
                     .attrs = {AttrF("epsilon", m.epsilon())}},
                    loss);
}
REGISTER_LOSS(log_loss, v1::LogLoss, Build, {.kind = v1::LossDesc::BINARY, .labels = LossFacts::Labels::kTwoClasses});

}  // namespace
}  // namespace weir
