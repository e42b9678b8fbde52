#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> MomentumRule(const v1::Momentum& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "mu", m.mu()));
  return UpdateRule{.op_type = "momentum",
                    .attrs = {AttrF("mu", m.mu()), AttrB("use_nesterov", m.nesterov())},
                    .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(momentum, v1::Momentum, MomentumRule);

}  // namespace
}  // namespace weir
