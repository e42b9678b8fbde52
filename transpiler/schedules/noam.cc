#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Noam(const v1::NoamDecay& m, const Setting& at, double learning_rate) {
  RETURN_IF_ERROR(CheckRatePositive(at, "d_model", m.d_model()));
  RETURN_IF_ERROR(CheckSteps(at, "warmup_steps", m.warmup_steps()));
  return ScheduleOp{.type = "lr_noam",
                    .attrs = {AttrF("learning_rate", learning_rate), AttrF("d_model", m.d_model()),
                              AttrI("warmup_steps", m.warmup_steps())}};
}

REGISTER_SCHEDULE(noam, v1::NoamDecay, Noam);

}  // namespace
}  // namespace weir
