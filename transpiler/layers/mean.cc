// mean: the mean of all elements of the batch, a scalar.
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildMean(const v1::Input& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  return ctx.Append(MakeOp("mean", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_LAYER(mean, v1::Input, BuildMean);

}  // namespace
}  // namespace weir
