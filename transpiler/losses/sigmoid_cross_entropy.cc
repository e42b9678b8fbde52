// sigmoid_cross_entropy: logits [B, 1], label in {0, 1}; or both [B, C], C classes. The prediction is sigmoid(logits).
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::SigmoidCrossEntropy& m, ModelContext& ctx, v1::LossDesc* loss) {
  ASSIGN_OR_RETURN(const v1::VarDesc logits, ctx.DenseInput("logits", m.logits()));
  ASSIGN_OR_RETURN(const v1::VarDesc label, ctx.DenseInput("label", m.label()));
  const auto wide = [](const v1::VarDesc& var) { return var.dims_size() == 2 && var.dims(1) > 1; };
  const bool classes = wide(logits) && wide(label);
  RETURN_IF_ERROR(AppendLoss(ctx,
                             {.type = classes ? "multi_label_cross_entropy" : "sigmoid_cross_entropy_with_logits",
                              .x_slot = "X",
                              .x = m.logits(),
                              .x_field = "logits",
                              .label = m.label(),
                              .sample_weight = m.sample_weight()},
                             loss));
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("sigmoid", {{"X", {m.logits()}}}, {{"Out", {loss->prediction()}}}));
}
REGISTER_LOSS(sigmoid_cross_entropy, v1::SigmoidCrossEntropy, Build,
              {.kind = v1::LossDesc::BINARY,
               .other_ops = {"sigmoid_cross_entropy_with_logits", "multi_label_cross_entropy"},
               .labels = LossFacts::Labels::kTwoClasses});

}  // namespace
}  // namespace weir
