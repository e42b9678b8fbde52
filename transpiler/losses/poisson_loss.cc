// poisson_loss: log_rate [B, 1], label a count. The prediction is exp(log_rate).
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::PoissonLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  RETURN_IF_ERROR(AppendLoss(ctx,
                             {.type = "poisson_loss",
                              .x_slot = "X",
                              .x = m.log_rate(),
                              .x_field = "log_rate",
                              .label = m.label(),
                              .sample_weight = m.sample_weight()},
                             loss));
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("exp", {{"X", {m.log_rate()}}}, {{"Out", {loss->prediction()}}}));
}
REGISTER_LOSS(poisson_loss, v1::PoissonLoss, Build,
              {.kind = v1::LossDesc::REGRESSION,

               .labels = LossFacts::Labels::kNotNegative,
               .label_name = "count"});

}  // namespace
}  // namespace weir
