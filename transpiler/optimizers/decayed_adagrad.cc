#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> DecayedAdagradRule(const v1::DecayedAdagrad& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "decay", m.decay()));
  RETURN_IF_ERROR(CheckPositive(at, "epsilon", m.epsilon()));
  return UpdateRule{.op_type = "decayed_adagrad",
                    .attrs = {AttrF("decay", m.decay()), AttrF("epsilon", m.epsilon())},
                    .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(decayed_adagrad, v1::DecayedAdagrad, DecayedAdagradRule);

}  // namespace
}  // namespace weir
