#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> SgdRule(const v1::Sgd& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  return UpdateRule{.op_type = "sgd", .attrs = {}, .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(sgd, v1::Sgd, SgdRule);

}  // namespace
}  // namespace weir
