// softmax_cross_entropy: logits [B, C], label [B, 1] class index. The prediction is softmax(logits).
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::SoftmaxCrossEntropy& m, ModelContext& ctx, v1::LossDesc* loss) {
  loss->set_prediction(ctx.name() + ".prediction");
  return AppendLoss(ctx,
                    {.type = "softmax_with_cross_entropy",
                     .x_slot = "Logits",
                     .x = m.logits(),
                     .x_field = "logits",
                     .label = m.label(),
                     .sample_weight = m.sample_weight(),
                     .loss_slot = "Loss",
                     .outputs = {{"Softmax", {loss->prediction()}}}},
                    loss);
}
REGISTER_LOSS(softmax_cross_entropy, v1::SoftmaxCrossEntropy, Build,
              {.kind = v1::LossDesc::MULTI_CLASS,
               .other_ops = {"softmax_with_cross_entropy"},
               .labels = LossFacts::Labels::kClass,
               .classes = "Logits"});

}  // namespace
}  // namespace weir
