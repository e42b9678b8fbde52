// mmoe: experts that all tasks read, and a gate of each task that weighs their outputs.
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/fc_parts.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

constexpr int kMost = 1024;  // experts, and tasks: far beyond any use

// Appends the layers of one expert and returns the name of its output.
absl::StatusOr<std::string> AppendExpert(const v1::Mmoe& m, int expert, ModelContext& ctx) {
  std::string x = m.input();
  for (int i = 0; i < m.sizes_size(); ++i) {
    const std::string part = absl::StrCat("expert", expert, ".", i);
    const std::string output = absl::StrCat(ctx.name(), ".", part);
    RETURN_IF_ERROR(AppendFc(ctx, {.inputs = {x},
                                   .size = m.sizes(i),
                                   .activation = m.activation(),
                                   .weight = m.has_weight_initializer() ? &m.weight_initializer() : nullptr,
                                   .part = part,
                                   .output = output}));
    x = output;
  }
  return x;
}

absl::Status BuildMmoe(const v1::Mmoe& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  for (const auto& [field, value] : {std::pair{"experts", m.experts()}, {"tasks", m.tasks()}}) {
    if (value < 1 || value > kMost) return ctx.Error(field, absl::StrCat("must be from 1 to ", kMost, ", got ", value));
  }
  if (m.sizes_size() == 0) return ctx.Error("sizes", "needs at least one size");
  for (const int64_t size : m.sizes()) {
    if (size < 1) return ctx.Error("sizes", absl::StrCat("must be at least 1, got ", size));
  }
  std::vector<std::string> outputs;
  for (int e = 0; e < m.experts(); ++e) {
    ASSIGN_OR_RETURN(std::string output, AppendExpert(m, e, ctx));
    outputs.push_back(std::move(output));
  }
  const int64_t width = m.sizes(m.sizes_size() - 1);
  std::string joined = outputs[0];
  if (outputs.size() > 1) {
    joined = ctx.name() + ".joined";
    RETURN_IF_ERROR(ctx.Append(MakeOp("concat", {{"X", outputs}}, {{"Out", {joined}}}, {AttrI("axis", 1)})));
  }
  const std::string experts = ctx.name() + ".experts";  // [B, experts, width]
  RETURN_IF_ERROR(ctx.Append(
      MakeOp("reshape", {{"X", {joined}}}, {{"Out", {experts}}}, {AttrInts("shape", {-1, m.experts(), width})})));
  for (int t = 0; t < m.tasks(); ++t) {
    const std::string gate = absl::StrCat(ctx.name(), ".gate", t);
    RETURN_IF_ERROR(AppendFc(ctx, {.inputs = {m.input()},
                                   .size = m.experts(),
                                   .activation = v1::SOFTMAX,
                                   .part = absl::StrCat("gate", t),
                                   .output = gate}));
    RETURN_IF_ERROR(ctx.Append(
        MakeOp("weighted_sum", {{"Weight", {gate}}, {"Y", {experts}}}, {{"Out", {absl::StrCat(ctx.name(), ".", t)}}})));
  }
  return absl::OkStatus();
}
REGISTER_LAYER(mmoe, v1::Mmoe, BuildMmoe);

}  // namespace
}  // namespace weir
