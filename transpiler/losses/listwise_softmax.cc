// listwise_softmax: scores [B, C] of the candidates of a request, label [B, C] their relevance. The prediction is
// softmax(scores).
#include <utility>

#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::ListwiseSoftmax& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (ctx.label_may_be_missing()) {
    return ctx.Error("label", "has several numbers; label_may_be_missing is for labels [B, 1]");
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;
  const std::pair<const char*, const std::string*> fields[] = {{"scores", &m.scores()}, {"label", &m.label()}};
  for (const auto& [field, variable] : fields) {
    RETURN_IF_ERROR(ctx.DenseInput(field, *variable).status());
    inputs.push_back({inputs.empty() ? "Scores" : "Label", {*variable}});
  }
  if (m.has_length()) {
    RETURN_IF_ERROR(ctx.DenseInput("length", m.length()).status());
    inputs.push_back({"Length", {m.length()}});
  }
  if (m.has_sample_weight()) {
    RETURN_IF_ERROR(ctx.DenseInput("sample_weight", m.sample_weight()).status());
    inputs.push_back({"Weight", {m.sample_weight()}});
    loss->set_sample_weight(m.sample_weight());
  }
  loss->set_var(ctx.name() + ".loss");
  loss->set_prediction(ctx.name() + ".prediction");
  loss->set_label(m.label());
  v1::OpDesc desc = MakeOp("listwise_softmax", inputs, {{"Softmax", {loss->prediction()}}, {"Out", {loss->var()}}});
  desc.set_role(v1::LOSS);
  return ctx.Append(std::move(desc));
}
REGISTER_LOSS(listwise_softmax, v1::ListwiseSoftmax, Build,
              {.kind = v1::LossDesc::REGRESSION,
               .several_numbers = true,

               .labels = LossFacts::Labels::kNotNegative,
               .label_name = "relevance",
               .numbers = {{.field = "length", .slot = "Length"}}});

}  // namespace
}  // namespace weir
