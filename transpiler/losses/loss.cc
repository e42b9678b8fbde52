#include "transpiler/losses/loss.h"

#include "framework/base/status_macros.h"

namespace weir {

KindRegistry<LossRule>& LossRegistry() {
  static auto* const registry = new KindRegistry<LossRule>("loss");
  return *registry;
}

absl::Status AppendLoss(ModelContext& ctx, LossOp op, v1::LossDesc* loss) {
  RETURN_IF_ERROR(ctx.DenseInput(op.x_field, op.x).status());
  RETURN_IF_ERROR(ctx.DenseInput("label", op.label).status());
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{op.x_slot, {op.x}}, {"Label", {op.label}}};
  if (!op.sample_weight.empty()) {
    RETURN_IF_ERROR(ctx.DenseInput("sample_weight", op.sample_weight).status());
    inputs.push_back({"Weight", {op.sample_weight}});
    loss->set_sample_weight(op.sample_weight);
  }
  op.outputs.push_back({op.loss_slot, {ctx.name() + ".loss"}});
  loss->set_var(ctx.name() + ".loss");
  loss->set_label(op.label);
  v1::OpDesc desc = MakeOp(op.type, inputs, op.outputs, op.attrs);
  desc.set_role(v1::LOSS);
  return ctx.Append(std::move(desc));
}

}  // namespace weir
