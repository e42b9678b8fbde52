#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> LarsMomentumRule(const v1::LarsMomentum& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "mu", m.mu()));
  RETURN_IF_ERROR(CheckPositive(at, "lars_coeff", m.lars_coeff()));
  RETURN_IF_ERROR(CheckNotNegative(at, "lars_weight_decay", m.lars_weight_decay()));
  RETURN_IF_ERROR(CheckNotNegative(at, "epsilon", m.epsilon()));
  return UpdateRule{
      .op_type = "lars_momentum",
      .attrs = {AttrF("mu", m.mu()), AttrF("lars_coeff", m.lars_coeff()),
                AttrF("lars_weight_decay", m.lars_weight_decay()), AttrF("epsilon", m.epsilon())},
      .learning_rate = m.learning_rate(),
      .norms = {{.slot = "ParamNorm", .of = NormInput::kParameter}, {.slot = "GradNorm", .of = NormInput::kGradient}}};
}

REGISTER_OPTIMIZER(lars_momentum, v1::LarsMomentum, LarsMomentumRule);

}  // namespace
}  // namespace weir
