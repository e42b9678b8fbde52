#include "transpiler/losses/pair_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

absl::StatusOr<std::string> PositiveWeight(ModelContext& ctx, const std::string& label,
                                           const std::string& sample_weight, const std::string& like,
                                           v1::LossDesc* loss) {
  if (!label.empty()) RETURN_IF_ERROR(ctx.DenseInput("label", label).status());
  if (!sample_weight.empty()) RETURN_IF_ERROR(ctx.DenseInput("sample_weight", sample_weight).status());
  loss->set_label(label.empty() ? ctx.name() + ".label" : label);
  loss->set_sample_weight(sample_weight);
  if (label.empty()) {
    if (ctx.label_may_be_missing()) {
      return ctx.Error("label", "is not set, and label_may_be_missing says that one may be missing: name the label");
    }
    RETURN_IF_ERROR(
        ctx.Append(MakeOp("fill_like_batch", {{"X", {like}}}, {{"Out", {loss->label()}}}, {AttrF("value", 1)})));
    return sample_weight;
  }
  std::string factor = label;
  if (ctx.label_may_be_missing()) {
    ASSIGN_OR_RETURN(const KnownLabel known, AppendKnownLabel(ctx, label, ""));
    factor = known.label;
  }
  if (sample_weight.empty()) return factor;
  const std::string weight = ctx.name() + ".weight";
  RETURN_IF_ERROR(
      ctx.Append(MakeOp("elementwise_mul", {{"X", {factor}}, {"Y", {sample_weight}}}, {{"Out", {weight}}})));
  return weight;
}

LossFacts PairFacts() {
  return {.kind = v1::LossDesc::BINARY, .labels = LossFacts::Labels::kFactor, .label_is_optional = true};
}

absl::Status AppendPairLoss(ModelContext& ctx, const std::string& type, const std::string& positive,
                            const std::string& negative, const std::string& label, const std::string& sample_weight,
                            std::vector<v1::OpAttr> attrs, v1::LossDesc* loss) {
  RETURN_IF_ERROR(ctx.DenseInput("positive", positive).status());
  RETURN_IF_ERROR(ctx.DenseInput("negative", negative).status());
  ASSIGN_OR_RETURN(const std::string weight, PositiveWeight(ctx, label, sample_weight, positive, loss));
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"Positive", {positive}},
                                                                          {"Negative", {negative}}};
  if (!weight.empty()) inputs.push_back({"Weight", {weight}});
  loss->set_var(ctx.name() + ".loss");
  v1::OpDesc desc = MakeOp(type, inputs, {{"Out", {loss->var()}}}, std::move(attrs));
  desc.set_role(v1::LOSS);
  RETURN_IF_ERROR(ctx.Append(std::move(desc)));
  loss->set_prediction(ctx.name() + ".prediction");
  return ctx.Append(MakeOp("sigmoid", {{"X", {positive}}}, {{"Out", {loss->prediction()}}}));
}

}  // namespace weir
