#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

absl::StatusOr<ScheduleOp> Piecewise(const v1::PiecewiseDecay& m, const Setting& at, double) {
  if (m.values_size() != m.boundaries_size() + 1) {
    return at.Error("", absl::StrCat("needs one value more than boundaries, got ", m.values_size(), " values and ",
                                     m.boundaries_size(), " boundaries"));
  }
  for (int i = 0; i < m.boundaries_size(); ++i) {
    if (m.boundaries(i) < 1 || (i > 0 && m.boundaries(i) <= m.boundaries(i - 1))) {
      return at.Error("boundaries",
                      absl::StrCat("must be at least 1 and ascend, got ", absl::StrJoin(m.boundaries(), ", ")));
    }
  }
  for (const double value : m.values()) RETURN_IF_ERROR(CheckRateNotNegative(at, "values", value));
  return ScheduleOp{
      .type = "lr_piecewise",
      .attrs = {AttrInts("boundaries",
                         absl::MakeConstSpan(m.boundaries().data(), static_cast<size_t>(m.boundaries_size()))),
                AttrFloats("values", absl::MakeConstSpan(m.values().data(), static_cast<size_t>(m.values_size())))},
      .uses_learning_rate = false};
}

REGISTER_SCHEDULE(piecewise, v1::PiecewiseDecay, Piecewise);

}  // namespace
}  // namespace weir
