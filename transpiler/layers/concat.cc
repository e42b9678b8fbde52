// concat: inputs side by side along the last axis, or the axis given. Inputs of different ranks are flattened to [B, K]
// first.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildConcat(const v1::Concat& m, ModelContext& ctx) {
  if (m.input_size() == 0) return ctx.Error("input", "is required");
  std::vector<v1::VarDesc> inputs;
  bool same_rank = true;
  for (int i = 0; i < m.input_size(); ++i) {
    ASSIGN_OR_RETURN(v1::VarDesc x, ctx.DenseInput(ElementOf("input", i), m.input(i)));
    same_rank &= inputs.empty() || x.dims_size() == inputs[0].dims_size();
    inputs.push_back(std::move(x));
  }
  const int rank = same_rank ? inputs[0].dims_size() : 2;
  const int axis = m.has_axis() ? m.axis() : rank - 1;
  if (axis < 1 || axis >= rank) {
    return ctx.Error("axis", absl::StrCat("must be in [1, ", rank - 1, "] for inputs of rank ", rank, ", got ", axis));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!same_rank) {
      ASSIGN_OR_RETURN(inputs[i], Flatten(ctx, ElementOf("input", i), inputs[i], absl::StrCat(ctx.name(), ".flat", i)));
    }
    names.push_back(inputs[i].name());
  }
  return ctx.Append(MakeOp("concat", {{"X", names}}, {{"Out", {ctx.name()}}}, {AttrI("axis", axis)}));
}
REGISTER_LAYER(concat, v1::Concat, BuildConcat);

}  // namespace
}  // namespace weir
