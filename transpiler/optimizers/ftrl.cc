#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

absl::StatusOr<UpdateRule> FtrlRule(const v1::Ftrl& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckNotNegative(at, "l1", m.l1()));
  RETURN_IF_ERROR(CheckNotNegative(at, "l2", m.l2()));
  RETURN_IF_ERROR(CheckPositive(at, "initial_accumulator", m.initial_accumulator()));
  if (!(m.learning_rate_power() <= 0 && m.learning_rate_power() >= -1)) {
    return at.Error("learning_rate_power", absl::StrCat("must be in [-1, 0], got ", m.learning_rate_power()));
  }
  return UpdateRule{.op_type = "ftrl",
                    .attrs = {AttrF("l1", m.l1()), AttrF("l2", m.l2()), AttrF("lr_power", m.learning_rate_power()),
                              AttrF("initial_accumulator", m.initial_accumulator())},
                    .learning_rate = m.learning_rate()};
}

REGISTER_OPTIMIZER(ftrl, v1::Ftrl, FtrlRule);

}  // namespace
}  // namespace weir
