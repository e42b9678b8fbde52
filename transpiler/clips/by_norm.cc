// by_norm and by_global_norm: sum_of_squares, whole_norm, clip_by_norm. They differ in what goes by one name: the
// gradient of one parameter, or those of a group (transpiler/passes/arrange_norms.h brings the group's whole_norms
// together).
#include <cmath>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/clips/clip.h"
#include "transpiler/clips/norm_vars.h"

namespace weir {
namespace {

absl::StatusOr<ClipOps> Clip(bool has_max_norm, double max_norm, bool global, const Setting& at) {
  if (!has_max_norm) return at.Error("", "needs max_norm");
  if (!std::isfinite(max_norm) || max_norm <= 0) {
    return at.Error("max_norm", absl::StrCat("must be positive, got ", max_norm));
  }
  return ClipOps([max_norm, global](const ClipTarget& target) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    const std::string& grad = target.grad.name();
    const std::string squares = grad + ".clip_squares", norm = grad + ".clip_norm";
    RETURN_IF_ERROR(target.declare(SumOfSquaresVar(squares)));
    RETURN_IF_ERROR(target.declare(WholeNormVar(norm)));
    return std::vector<v1::OpDesc>{
        MakeOp("sum_of_squares", {{"X", {grad}}}, {{"Out", {squares}}}),
        MakeOp("whole_norm", {{"X", {squares}}}, {{"Out", {norm}}},
               {AttrS("name", global ? target.group : grad + ".clip")}),
        MakeOp("clip_by_norm", {{"X", {grad}}, {"Norm", {norm}}}, {{"Out", {grad}}}, {AttrF("max_norm", max_norm)})};
  });
}

REGISTER_CLIP(by_norm, v1::ClipByNorm, [](const v1::ClipByNorm& m, const Setting& at) {
  return Clip(m.has_max_norm(), m.max_norm(), /*global=*/false, at);
});
REGISTER_CLIP(by_global_norm, v1::ClipByGlobalNorm, [](const v1::ClipByGlobalNorm& m, const Setting& at) {
  return Clip(m.has_max_norm(), m.max_norm(), /*global=*/true, at);
});

}  // namespace
}  // namespace weir
