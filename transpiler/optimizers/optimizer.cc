#include "transpiler/optimizers/optimizer.h"

#include <cmath>

#include "framework/base/status_macros.h"

namespace weir {

KindRegistry<OptimizerRule>& OptimizerRegistry() {
  static auto* const registry = new KindRegistry<OptimizerRule>("optimizer");
  return *registry;
}

absl::StatusOr<UpdateRule> MakeUpdateRule(const Setting& optimizer) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(optimizer, "kind"));
  ASSIGN_OR_RETURN(const OptimizerRule* rule, OptimizerRegistry().Find(kind));
  return (*rule)(kind.setting.message(), kind.setting);
}

absl::Status CheckFloat(const Setting& at, std::string_view field, double value) {
  if (!std::isfinite(value)) return at.Error(field, absl::StrCat("must be finite, got ", value));
  // Accept zero and normal floats: a smaller number would turn 1 / 1e-50 into infinity and 0 / (0 + 1e-50) into NaN.
  const float used = static_cast<float>(value);
  if (value == 0 || std::isnormal(used)) return absl::OkStatus();
  return at.Error(field, absl::StrCat("is ", value, ", too ", std::isfinite(used) ? "small" : "large",
                                      " for the 32-bit floats that are computed with"));
}

absl::Status CheckPositive(const Setting& at, std::string_view field, double value) {
  if (!(value > 0)) return at.Error(field, absl::StrCat("must be positive, got ", value));
  return CheckFloat(at, field, value);
}

absl::Status CheckNotNegative(const Setting& at, std::string_view field, double value) {
  if (!(value >= 0)) return at.Error(field, absl::StrCat("must not be negative, got ", value));
  return CheckFloat(at, field, value);
}

absl::Status CheckDecay(const Setting& at, std::string_view field, double value) {
  if (value >= 0 && static_cast<float>(value) < 1) return CheckFloat(at, field, value);
  return at.Error(field, absl::StrCat("must be at least 0 and below 1, got ", value,
                                      value < 1 && value > 0 ? ", which is 1 as a 32-bit float" : ""));
}

}  // namespace weir
