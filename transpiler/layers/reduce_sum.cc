// reduce_sum: sums axes away, all but the batch unless given.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildReduceSum(const v1::ReduceSum& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  for (int i = 0; i < m.axis_size(); ++i) {
    if (m.axis(i) < 1) {
      return ctx.Error(ElementOf("axis", i), absl::StrCat("must be at least 1: axis 0 is the batch, got ", m.axis(i)));
    }
  }
  return ctx.Append(MakeOp(
      "reduce_sum", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}},
      {AttrInts("dims", std::vector<int64_t>(m.axis().begin(), m.axis().end())), AttrB("keep_dim", m.keep_dim())}));
}
REGISTER_LAYER(reduce_sum, v1::ReduceSum, BuildReduceSum);

}  // namespace
}  // namespace weir
