#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> AdagradRule(const v1::Adagrad& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckNotNegative(at, "epsilon", m.epsilon()));
  RETURN_IF_ERROR(CheckNotNegative(at, "initial_accumulator", m.initial_accumulator()));
  // Without either the first zero gradient divides zero by zero.
  if (m.epsilon() == 0 && m.initial_accumulator() == 0) {
    return at.Error("epsilon", "must be positive when initial_accumulator is 0");
  }
  if (m.per_row()) return at.Error("per_row", "is not available in this version");
  return UpdateRule{
      .op_type = "adagrad",
      .attrs = {AttrF("epsilon", m.epsilon()), AttrF("initial_accumulator", m.initial_accumulator())},
      .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(adagrad, v1::Adagrad, AdagradRule);

}  // namespace
}  // namespace weir
