// add_positions: a sequence [B, T, W] plus a vector for each position. Parameter "<layer>.w" [T, W].
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/sequence_parts.h"

namespace weir {
namespace {

constexpr double kDeviation = 0.02;  // of initial vectors, as BERT's and SASRec's

absl::Status BuildAddPositions(const v1::AddPositions& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const std::string length, SequenceLength(ctx, "input", m.input(), m.length()));
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  RETURN_IF_ERROR(ctx.FlatWidth("input", x).status());
  v1::Initializer initializer = m.initializer();
  if (!m.has_initializer()) initializer.mutable_gaussian()->set_stddev(kDeviation);
  ASSIGN_OR_RETURN(const std::string w, ctx.Parameter("w", {x.dims(1), x.dims(2)}, initializer));
  return ctx.Append(MakeOp("add_positions", {{"X", {m.input()}}, {"W", {w}}, {"Length", {length}}},
                           {{"Out", {ctx.name()}}}, {AttrB("from_end", m.from_end())}));
}
REGISTER_LAYER(add_positions, v1::AddPositions, BuildAddPositions);

}  // namespace
}  // namespace weir
