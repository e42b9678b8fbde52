// mmoe: experts that all tasks read, and for each task a gate that weights their outputs. Task t has the output
// "<name>.<t>" [B, W], W the last of `sizes`.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/expert_parts.h"
#include "transpiler/layers/parts/fc_parts.h"

namespace weir {
namespace {

constexpr int kMost = 1024;  // experts, tasks and levels: far beyond any use

absl::Status BuildMmoe(const v1::Mmoe& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  RETURN_IF_ERROR(CheckExperts(ctx, {{"experts", m.experts()}, {"tasks", m.tasks()}}, m.sizes()));
  const ExpertParts expert = {.sizes = m.sizes(),
                              .activation = m.activation(),
                              .weight = m.has_weight_initializer() ? &m.weight_initializer() : nullptr};
  std::vector<std::string> outputs;
  for (int e = 0; e < m.experts(); ++e) {
    ASSIGN_OR_RETURN(std::string output, AppendExpert(ctx, expert, m.input(), absl::StrCat("expert", e)));
    outputs.push_back(std::move(output));
  }
  ASSIGN_OR_RETURN(const std::string experts, JoinExperts(ctx, outputs, m.sizes(m.sizes_size() - 1), ""));
  for (int t = 0; t < m.tasks(); ++t) {
    RETURN_IF_ERROR(
        AppendGate(ctx, m.input(), experts, m.experts(), absl::StrCat("gate", t), absl::StrCat(ctx.name(), ".", t)));
  }
  return absl::OkStatus();
}
REGISTER_LAYER(mmoe, v1::Mmoe, BuildMmoe);

}  // namespace

absl::Status CheckExperts(const ModelContext& ctx, const std::vector<std::pair<const char*, int>>& numbers,
                          absl::Span<const int64_t> sizes) {
  for (const auto& [field, value] : numbers) {
    if (value < 1 || value > kMost) return ctx.Error(field, absl::StrCat("must be from 1 to ", kMost, ", got ", value));
  }
  if (sizes.empty()) return ctx.Error("sizes", "needs at least one size");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) return ctx.Error(ElementOf("sizes", i), absl::StrCat("must be at least 1, got ", sizes[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> AppendExpert(ModelContext& ctx, const ExpertParts& expert, const std::string& input,
                                         const std::string& part) {
  std::string x = input;
  for (size_t i = 0; i < expert.sizes.size(); ++i) {
    const std::string layer = absl::StrCat(part, ".", i);
    const std::string output = absl::StrCat(ctx.name(), ".", layer);
    RETURN_IF_ERROR(AppendFc(ctx, {.inputs = {x},
                                   .size = expert.sizes[i],
                                   .activation = expert.activation,
                                   .weight = expert.weight,
                                   .part = layer,
                                   .output = output}));
    x = output;
  }
  return x;
}

absl::StatusOr<std::string> JoinExperts(ModelContext& ctx, const std::vector<std::string>& outputs, int64_t width,
                                        const std::string& part) {
  std::string joined = outputs[0];
  if (outputs.size() > 1) {
    joined = absl::StrCat(ctx.name(), ".", part, "joined");
    RETURN_IF_ERROR(ctx.Append(MakeOp("concat", {{"X", outputs}}, {{"Out", {joined}}}, {AttrI("axis", 1)})));
  }
  const std::string experts = absl::StrCat(ctx.name(), ".", part, "experts");
  const int64_t count = static_cast<int64_t>(outputs.size());
  RETURN_IF_ERROR(
      ctx.Append(MakeOp("reshape", {{"X", {joined}}}, {{"Out", {experts}}}, {AttrInts("shape", {-1, count, width})})));
  return experts;
}

absl::Status AppendGate(ModelContext& ctx, const std::string& input, const std::string& experts, int count,
                        const std::string& gate, const std::string& output) {
  const std::string weights = absl::StrCat(ctx.name(), ".", gate);
  RETURN_IF_ERROR(
      AppendFc(ctx, {.inputs = {input}, .size = count, .activation = v1::SOFTMAX, .part = gate, .output = weights}));
  return ctx.Append(MakeOp("weighted_sum", {{"Weight", {weights}}, {"Y", {experts}}}, {{"Out", {output}}}));
}

}  // namespace weir
