#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Polynomial(const v1::PolynomialDecay& m, const Setting& at, double learning_rate) {
  RETURN_IF_ERROR(CheckSteps(at, "decay_steps", m.decay_steps()));
  RETURN_IF_ERROR(CheckRateNotNegative(at, "end_learning_rate", m.end_learning_rate()));
  RETURN_IF_ERROR(CheckRatePositive(at, "power", m.power()));
  return ScheduleOp{.type = "lr_polynomial",
                    .attrs = {AttrF("learning_rate", learning_rate), AttrI("decay_steps", m.decay_steps()),
                              AttrF("end_learning_rate", m.end_learning_rate()), AttrF("power", m.power()),
                              AttrB("cycle", m.cycle())}};
}

REGISTER_SCHEDULE(polynomial, v1::PolynomialDecay, Polynomial);

}  // namespace
}  // namespace weir
