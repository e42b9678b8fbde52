#include <cmath>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/clips/clip.h"

namespace weir {
namespace {

absl::StatusOr<ClipOps> ByValue(const v1::ClipByValue& m, const Setting& at) {
  if (!m.has_max()) return at.Error("", "needs max");
  const double max = m.max();
  const double min = m.has_min() ? m.min() : -max;
  if (!std::isfinite(max)) return at.Error("max", absl::StrCat("must be finite, got ", max));
  if (!std::isfinite(min)) return at.Error("min", absl::StrCat("must be finite, got ", min));
  if (min > max) {
    return at.Error(m.has_min() ? "min" : "max", absl::StrCat("leaves nothing between min, ", min, ", and max, ", max));
  }
  return ClipOps([min, max](const ClipTarget& target) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    const std::string& grad = target.grad.name();
    return std::vector<v1::OpDesc>{
        MakeOp("clip", {{"X", {grad}}}, {{"Out", {grad}}}, {AttrF("min", min), AttrF("max", max)})};
  });
}

REGISTER_CLIP(by_value, v1::ClipByValue, ByValue);

}  // namespace
}  // namespace weir
