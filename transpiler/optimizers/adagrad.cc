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
  return UpdateRule{.op_type = m.per_row() ? "adagrad_per_row" : "adagrad",
                    .attrs = {AttrF("epsilon", m.epsilon()), AttrF("initial_accumulator", m.initial_accumulator())},
                    .learning_rate = m.learning_rate(),
                    .only_tables = m.per_row() ? at.path() + ".per_row" : ""};
}

REGISTER_OPTIMIZER(adagrad, v1::Adagrad, AdagradRule);

}  // namespace
}  // namespace weir
