// reduce_sum: sums axes away, all but the batch unless given.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildReduceSum(const v1::ReduceSum& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  for (const int axis : m.axis()) {
    if (axis < 1) return ctx.Error("axis", absl::StrCat("must be at least 1: axis 0 is the batch, got ", axis));
  }
  return ctx.Append(MakeOp(
      "reduce_sum", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}},
      {AttrInts("dims", std::vector<int64_t>(m.axis().begin(), m.axis().end())), AttrB("keep_dim", m.keep_dim())}));
}
REGISTER_LAYER(reduce_sum, v1::ReduceSum, BuildReduceSum);

}  // namespace
}  // namespace weir
