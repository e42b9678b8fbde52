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

absl::Status CheckPositive(const Setting& at, std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be positive, got ", value));
}

absl::Status CheckNotNegative(const Setting& at, std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must not be negative, got ", value));
}

absl::Status CheckDecay(const Setting& at, std::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at least 0 and below 1, got ", value));
}

}  // namespace weir
