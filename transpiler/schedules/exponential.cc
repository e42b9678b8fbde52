#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Exponential(const v1::ExponentialDecay& m, const Setting& at, double learning_rate) {
  RETURN_IF_ERROR(CheckSteps(at, "decay_steps", m.decay_steps()));
  RETURN_IF_ERROR(CheckRatePositive(at, "decay_rate", m.decay_rate()));
  return ScheduleOp{.type = "lr_exponential",
                    .attrs = {AttrF("learning_rate", learning_rate), AttrI("decay_steps", m.decay_steps()),
                              AttrF("decay_rate", m.decay_rate()), AttrB("staircase", m.staircase())}};
}

REGISTER_SCHEDULE(exponential, v1::ExponentialDecay, Exponential);

}  // namespace
}  // namespace weir
