#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> LambRule(const v1::Lamb& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "beta1", m.beta1()));
  RETURN_IF_ERROR(CheckDecay(at, "beta2", m.beta2()));
  RETURN_IF_ERROR(CheckPositive(at, "epsilon", m.epsilon()));
  RETURN_IF_ERROR(CheckNotNegative(at, "weight_decay", m.weight_decay()));
  return UpdateRule{
      .op_type = "lamb",
      .attrs = {AttrF("beta1", m.beta1()), AttrF("beta2", m.beta2()), AttrF("epsilon", m.epsilon()),
                AttrF("weight_decay", m.weight_decay())},
      .learning_rate = m.learning_rate(),
      .norms = {{.slot = "ParamNorm", .of = NormInput::kParameter},
                {.slot = "DirectionNorm", .of = NormInput::kDirection, .direction_op = "lamb_direction"}}};
}

REGISTER_OPTIMIZER(lamb, v1::Lamb, LambRule);

}  // namespace
}  // namespace weir
