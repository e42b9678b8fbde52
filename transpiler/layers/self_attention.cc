// self_attention: [B, T, W] -> [B, T, W], or without projection [B, T, size]: each element becomes a weighted sum of
// the elements that it attends to. Parameters "<layer>.q", "<layer>.k", "<layer>.v" [W, size] and "<layer>.w" [size,
// W].
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"
#include "transpiler/layers/parts/sequence_parts.h"

namespace weir {
namespace {

// Returns "" where all elements count. Where the job has sequences, it must say so: the length of what is made of a
// sequence is easily forgotten, and elements would attend to what is behind it.
absl::StatusOr<std::string> LengthOf(const v1::SelfAttention& m, ModelContext& ctx) {
  if (m.has_length()) return m.length().empty() ? "" : SequenceLength(ctx, "input", m.input(), m.length());
  const std::string length = m.input() + ".length";
  if (ctx.DenseInput("length", length).ok()) return length;
  for (const v1::Layer& layer : ctx.job().model().layer()) {
    if (layer.embedding().sequence() == 0) continue;
    return ctx.Error("length", absl::StrCat("is needed, as the job has sequences: '", layer.name(), ".length' where '",
                                            m.input(), "' is made of that one, \"\" where all elements count"));
  }
  return "";
}

absl::Status BuildSelfAttention(const v1::SelfAttention& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  RETURN_IF_ERROR(ctx.FlatWidth("input", x).status());
  if (x.dims_size() != 3) {
    return ctx.Error(
        "input",
        absl::StrCat("'", m.input(), "' has dims ", ShapeString(absl::MakeConstSpan(x.dims().data(), x.dims_size())),
                     "; attention is among elements [batch, elements, width], as an embedding with "
                     "`sequence`, or without pooling, gives them"));
  }
  const int64_t width = x.dims(2), size = m.has_size() ? m.size() : width;
  if (size < 1) return ctx.Error("size", absl::StrCat("must be at least 1, got ", size));
  if (m.heads() < 1) return ctx.Error("heads", absl::StrCat("must be at least 1, got ", m.heads()));
  if (size % m.heads() != 0) {
    return ctx.Error(m.has_size() ? "size" : "heads",
                     absl::StrCat("must fit: ", size, " values are no multiple of ", m.heads(), " heads"));
  }
  ASSIGN_OR_RETURN(const std::string length, LengthOf(m, ctx));
  const v1::Initializer& initial = m.has_weight_initializer() ? m.weight_initializer() : DefaultWeight();
  // Appends output = from * parameter [rows, columns], of each element.
  const auto multiply = [&](const std::string& from, const char* suffix, int64_t rows, int64_t columns,
                            const std::string& output) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string weight, ctx.Parameter(suffix, {rows, columns}, initial));
    return ctx.Append(MakeOp("fc", {{"X", {from}}, {"W", {weight}}}, {{"Out", {output}}}, {AttrI("row_dims", 2)}));
  };
  const std::string q = ctx.name() + ".queries", k = ctx.name() + ".keys", v = ctx.name() + ".values";
  RETURN_IF_ERROR(multiply(m.input(), "q", width, size, q));
  RETURN_IF_ERROR(multiply(m.input(), "k", width, size, k));
  RETURN_IF_ERROR(multiply(m.input(), "v", width, size, v));
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"Q", {q}}, {"K", {k}}, {"V", {v}}};
  if (!length.empty()) inputs.push_back({"Length", {length}});
  const std::string out = m.project() ? ctx.name() + ".heads" : ctx.name();
  RETURN_IF_ERROR(ctx.Append(MakeOp("self_attention", inputs, {{"Out", {out}}, {"Weight", {ctx.name() + ".weight"}}},
                                    {AttrI("heads", m.heads()), AttrB("causal", m.causal())})));
  return m.project() ? multiply(out, "w", size, width, ctx.name()) : absl::OkStatus();
}
REGISTER_LAYER(self_attention, v1::SelfAttention, BuildSelfAttention);

}  // namespace
}  // namespace weir
