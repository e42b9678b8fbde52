#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Cosine(const v1::CosineDecay& m, const Setting& at, double learning_rate) {
  RETURN_IF_ERROR(CheckSteps(at, "decay_steps", m.decay_steps()));
  RETURN_IF_ERROR(CheckRateNotNegative(at, "end_learning_rate", m.end_learning_rate()));
  return ScheduleOp{.type = "lr_cosine",
                    .attrs = {AttrF("learning_rate", learning_rate), AttrI("decay_steps", m.decay_steps()),
                              AttrF("end_learning_rate", m.end_learning_rate())}};
}

REGISTER_SCHEDULE(cosine, v1::CosineDecay, Cosine);

}  // namespace
}  // namespace weir
