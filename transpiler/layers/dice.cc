// dice: [B, .., W] -> the same, weighed by where a value stands in its batch. Parameter "<layer>.slope" [W];
// "<layer>.mean" and "<layer>.variance" [W] are running averages, which no optimizer moves.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/column_parts.h"

namespace weir {
namespace {

absl::Status BuildDice(const v1::Dice& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const int64_t width, LastWidth(ctx, m.input()));
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t values, ctx.FlatWidth("input", x));
  // A sequence has many rows.
  if (values == width) {
    RETURN_IF_ERROR(ctx.NeedSeveralExamples(
        "input", "mean and variance are those of a lane's own examples, so that a single one is always its own mean"));
  }
  RETURN_IF_ERROR(CheckEpsilon(ctx, m.epsilon()));
  if (!(m.momentum() >= 0 && m.momentum() < 1)) {
    return ctx.Error("momentum", absl::StrCat("must be at least 0 and below 1, got ", m.momentum()));
  }
  ASSIGN_OR_RETURN(const std::string slope, ConstantParameter(ctx, "slope", width, 0));
  ASSIGN_OR_RETURN(const std::string mean, ConstantParameter(ctx, "mean", width, 0));
  ASSIGN_OR_RETURN(const std::string variance, ConstantParameter(ctx, "variance", width, 1));
  return ctx.Append(MakeOp("dice", {{"X", {m.input()}}, {"Slope", {slope}}, {"Mean", {mean}}, {"Variance", {variance}}},
                           {{"Out", {ctx.name()}},
                            {"BatchMean", {ctx.name() + ".batch_mean"}},
                            {"BatchVariance", {ctx.name() + ".batch_variance"}}},
                           {AttrF("epsilon", m.epsilon()), AttrF("momentum", m.momentum())}));
}
REGISTER_LAYER(dice, v1::Dice, BuildDice);

}  // namespace
}  // namespace weir
