#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> NaturalExp(const v1::NaturalExpDecay& m, const Setting& at, double learning_rate) {
  RETURN_IF_ERROR(CheckSteps(at, "decay_steps", m.decay_steps()));
  RETURN_IF_ERROR(CheckRateNotNegative(at, "decay_rate", m.decay_rate()));
  return ScheduleOp{.type = "lr_natural_exp",
                    .attrs = {AttrF("learning_rate", learning_rate), AttrI("decay_steps", m.decay_steps()),
                              AttrF("decay_rate", m.decay_rate()), AttrB("staircase", m.staircase())}};
}

REGISTER_SCHEDULE(natural_exp, v1::NaturalExpDecay, NaturalExp);

}  // namespace
}  // namespace weir
