// gru: a gated recurrent unit over a sequence [B, T, W]: its states [B, T, size], or the last one [B, size].
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"
#include "transpiler/layers/parts/sequence_parts.h"

namespace weir {
namespace {

constexpr int64_t kMostValues = int64_t{1} << 28;  // so that sizes of gates do not overflow

absl::Status BuildGru(const v1::Gru& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const std::string length, SequenceLength(ctx, "input", m.input(), m.length()));
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  if (m.size() < 1 || m.size() > kMostValues) {
    return ctx.Error("size", absl::StrCat("must be from 1 to ", kMostValues, ", got ", m.size()));
  }
  const v1::Initializer& weight = m.has_weight_initializer() ? m.weight_initializer() : DefaultWeight();
  ASSIGN_OR_RETURN(const std::string w, ctx.Parameter("w", {x.dims(2), 3 * m.size()}, weight));
  ASSIGN_OR_RETURN(const std::string u, ctx.Parameter("u", {m.size(), 3 * m.size()}, weight));
  ASSIGN_OR_RETURN(const std::string b, ctx.Parameter("b", {3 * m.size()}, DefaultBias()));
  ASSIGN_OR_RETURN(const std::string c, ctx.Parameter("c", {3 * m.size()}, DefaultBias()));
  const std::string states = m.sequence() ? ctx.name() : ctx.name() + ".states";
  const std::string last = m.sequence() ? ctx.name() + ".last" : ctx.name();
  return ctx.Append(MakeOp("gru",
                           {{"X", {m.input()}}, {"Length", {length}}, {"W", {w}}, {"U", {u}}, {"B", {b}}, {"C", {c}}},
                           {{"Hidden", {states}}, {"Last", {last}}, {"Gates", {ctx.name() + ".gates"}}}));
}
REGISTER_LAYER(gru, v1::Gru, BuildGru);

}  // namespace
}  // namespace weir
