// in_batch_softmax: the product of a query and its item among those with the items of the other examples of the lane's
// batch. The prediction is sigmoid(product / temperature).
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/losses/pair_parts.h"

namespace weir {
namespace {

absl::Status Build(const v1::InBatchSoftmax& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.temperature() > 0)) {
    return ctx.Error("temperature", absl::StrCat("must be positive, got ", m.temperature()));
  }
  RETURN_IF_ERROR(ctx.NeedSeveralExamples(
      "query",
      "negatives are the items of the other examples of a lane's batch, and without them the loss is always 0"));
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  std::vector<int64_t> widths;
  const std::pair<const char*, const std::string*> towers[] = {{"query", &m.query()}, {"item", &m.item()}};
  for (const auto& [field, variable] : towers) {
    ASSIGN_OR_RETURN(const v1::VarDesc var, ctx.DenseInput(field, *variable));
    // One slot that is not pooled is [B, 1, W].
    ASSIGN_OR_RETURN(const v1::VarDesc flat, Flatten(ctx, field, var, absl::StrCat(ctx.name(), ".", field)));
    inputs.push_back({inputs.empty() ? "Query" : "Item", {flat.name()}});
    widths.push_back(flat.dims(1));
  }
  if (widths[0] != widths[1]) {
    return ctx.Error("item", absl::StrCat("'", m.item(), "' has ", widths[1], " numbers an example, query '", m.query(),
                                          "' ", widths[0], ": give both towers one size"));
  }
  if (m.has_probability()) {
    RETURN_IF_ERROR(ctx.DenseInput("probability", m.probability()).status());
    inputs.push_back({"Probability", {m.probability()}});
  }
  if (m.has_item_id()) {
    ASSIGN_OR_RETURN(const v1::VarDesc ids, ctx.Input("item_id", m.item_id()));
    if (ids.kind() != v1::IDS) return ctx.Error("item_id", absl::StrCat("'", m.item_id(), "' is no variable of ids"));
    if (ctx.job().data().ids().min_count() > 1) {
      return ctx.Error("item_id", absl::StrCat("'", m.item_id(),
                                               "' has one id for all that are rare, by data.ids.min_count: rare items "
                                               "would be no negatives of each other. Take min_count out (a table can "
                                               "keep rare ids out by its lifecycle), or leave item_id out"));
    }
    inputs.push_back({"ItemId", {m.item_id()}});
  }
  // A prediction is of one example, and needs neither the others nor the probability.
  const std::string product = ctx.name() + ".product", score = ctx.name() + ".score";
  RETURN_IF_ERROR(ctx.Append(MakeOp("dot", {{"X", inputs[0].second}, {"Y", inputs[1].second}}, {{"Out", {product}}})));
  RETURN_IF_ERROR(
      ctx.Append(MakeOp("scale", {{"X", {product}}}, {{"Out", {score}}}, {AttrF("scale", 1 / m.temperature())})));
  loss->set_var(ctx.name() + ".loss");
  loss->set_prediction(ctx.name() + ".prediction");
  ASSIGN_OR_RETURN(const std::string weight, PositiveWeight(ctx, m.label(), m.sample_weight(), score, loss));
  if (!weight.empty()) inputs.push_back({"Weight", {weight}});
  v1::OpDesc desc = MakeOp("in_batch_softmax", inputs, {{"LogSum", {ctx.name() + ".log_sum"}}, {"Out", {loss->var()}}},
                           {AttrF("temperature", m.temperature())});
  desc.set_role(v1::LOSS);
  RETURN_IF_ERROR(ctx.Append(std::move(desc)));
  return ctx.Append(MakeOp("sigmoid", {{"X", {score}}}, {{"Out", {loss->prediction()}}}));
}
LossFacts Facts() {
  LossFacts facts = PairFacts();
  facts.across_examples = true;
  facts.numbers = {{.field = "probability", .slot = "Probability", .above_zero = true}};
  return facts;
}
REGISTER_LOSS(in_batch_softmax, v1::InBatchSoftmax, Build, Facts());

}  // namespace
}  // namespace weir
