// attention_pool: the weighted sum of a sequence [B, T, W], its elements weighed against a query [B, W] by an mlp
// (DIN). The mlp reads [q, k, q - k, q * k] of each element. Its layers are "<name>.0", "<name>.1", ..., the last one
// of size 1.
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"
#include "transpiler/layers/parts/sequence_parts.h"

namespace weir {
namespace {

absl::Status BuildAttentionPool(const v1::AttentionPool& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(v1::VarDesc query, ctx.DenseInput("query", m.query()));
  ASSIGN_OR_RETURN(const std::string length, SequenceLength(ctx, "sequence", m.sequence(), m.length()));
  if (m.activation() == v1::SOFTMAX)
    return ctx.Error("activation", "SOFTMAX is none between the layers of the mlp; see `softmax`");
  // One slot that is not pooled is [B, 1, W].
  ASSIGN_OR_RETURN(query, Flatten(ctx, "query", query, ctx.name() + ".query"));
  std::string x = ctx.name() + ".pairs";
  RETURN_IF_ERROR(ctx.Append(MakeOp("attention_pairs",
                                    {{"Query", {query.name()}}, {"Sequence", {m.sequence()}}, {"Length", {length}}},
                                    {{"Out", {x}}})));
  for (int i = 0; i <= m.sizes_size(); ++i) {
    const bool last = i == m.sizes_size();
    if (!last && m.sizes(i) < 1)
      return ctx.Error(ElementOf("sizes", i), absl::StrCat("must be at least 1, got ", m.sizes(i)));
    const std::string output = absl::StrCat(ctx.name(), ".", i);
    RETURN_IF_ERROR(AppendFc(ctx, {.inputs = {x},
                                   .size = last ? 1 : m.sizes(i),
                                   .activation = last ? v1::IDENTITY : m.activation(),
                                   .part = absl::StrCat(i),
                                   .output = output,
                                   .row_dims = 2}));
    x = output;
  }
  return ctx.Append(MakeOp("attention_pool", {{"Score", {x}}, {"Sequence", {m.sequence()}}, {"Length", {length}}},
                           {{"Out", {ctx.name()}}, {"Weight", {ctx.name() + ".weight"}}},
                           {AttrB("softmax", m.softmax())}));
}
REGISTER_LAYER(attention_pool, v1::AttentionPool, BuildAttentionPool);

}  // namespace
}  // namespace weir
