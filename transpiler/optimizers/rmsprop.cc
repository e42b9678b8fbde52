#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> RmsPropRule(const v1::RmsProp& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "rho", m.rho()));
  RETURN_IF_ERROR(CheckDecay(at, "mu", m.mu()));
  RETURN_IF_ERROR(CheckPositive(at, "epsilon", m.epsilon()));
  return UpdateRule{.op_type = m.centered() ? "rmsprop_centered" : "rmsprop",
                    .attrs = {AttrF("rho", m.rho()), AttrF("mu", m.mu()), AttrF("epsilon", m.epsilon())},
                    .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(rmsprop, v1::RmsProp, RmsPropRule);

}  // namespace
}  // namespace weir
