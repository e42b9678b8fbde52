#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Constant(const v1::ConstantSchedule&, const Setting&, double learning_rate) {
  return ScheduleOp{.type = "lr_constant", .attrs = {AttrF("learning_rate", learning_rate)}};
}

REGISTER_SCHEDULE(constant, v1::ConstantSchedule, Constant);

}  // namespace
}  // namespace weir
