#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> AdamaxRule(const v1::Adamax& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "beta1", m.beta1()));
  RETURN_IF_ERROR(CheckDecay(at, "beta2", m.beta2()));
  RETURN_IF_ERROR(CheckPositive(at, "epsilon", m.epsilon()));
  return UpdateRule{.op_type = "adamax",
                    .attrs = {AttrF("beta1", m.beta1()), AttrF("beta2", m.beta2()), AttrF("epsilon", m.epsilon())},
                    .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(adamax, v1::Adamax, AdamaxRule);

}  // namespace
}  // namespace weir
