#include "transpiler/losses/loss.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

KindRegistry<LossRule>& LossRegistry() {
  static auto* const registry = new KindRegistry<LossRule>("loss");
  return *registry;
}

absl::StatusOr<KnownLabel> AppendKnownLabel(ModelContext& ctx, const std::string& label,
                                            const std::string& sample_weight) {
  if (!ctx.IsOfData(label)) {
    return ctx.Error("label", absl::StrCat("'", label,
                                           "' is computed by a layer; label_may_be_missing is for a label that the "
                                           "data gives"));
  }
  KnownLabel known{.label = ctx.name() + ".label", .weight = ctx.name() + ".known"};
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"X", {label}}};
  if (!sample_weight.empty()) inputs.push_back({"Weight", {sample_weight}});
  RETURN_IF_ERROR(ctx.Append(MakeOp("known_label", inputs, {{"Out", {known.label}}, {"Mask", {known.weight}}})));
  return known;
}

absl::Status AppendLoss(ModelContext& ctx, LossOp op, v1::LossDesc* loss) {
  RETURN_IF_ERROR(ctx.DenseInput(op.x_field, op.x).status());
  RETURN_IF_ERROR(ctx.DenseInput("label", op.label).status());
  if (ctx.label_may_be_missing()) {
    if (!op.sample_weight.empty()) RETURN_IF_ERROR(ctx.DenseInput("sample_weight", op.sample_weight).status());
    ASSIGN_OR_RETURN(const KnownLabel known, AppendKnownLabel(ctx, op.label, op.sample_weight));
    // Evaluation looks at the label itself, and at the weight of the data.
    const std::string label = op.label, weight = op.sample_weight;
    op.label = known.label;
    op.sample_weight = known.weight;
    ctx.set_label_may_be_missing(false);
    const absl::Status appended = AppendLoss(ctx, std::move(op), loss);
    ctx.set_label_may_be_missing(true);
    loss->set_label(label);
    loss->set_sample_weight(weight);
    return appended;
  }
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

absl::Status AppendLearnedWeight(ModelContext& ctx, v1::LossDesc* loss) {
  v1::Initializer zero;
  zero.mutable_constant()->set_value(0);
  ASSIGN_OR_RETURN(const std::string log_variance, ctx.Parameter("log_variance", {1}, zero));
  const std::string weighted = ctx.name() + ".weighted";
  v1::OpDesc desc =
      MakeOp("learned_weight", {{"X", {loss->var()}}, {"LogVariance", {log_variance}}}, {{"Out", {weighted}}});
  desc.set_role(v1::LOSS);
  RETURN_IF_ERROR(ctx.Append(std::move(desc)));
  loss->set_var(weighted);
  return absl::OkStatus();
}

}  // namespace weir
