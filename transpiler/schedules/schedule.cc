#include "transpiler/schedules/schedule.h"

#include <cmath>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "google/protobuf/descriptor.h"

namespace weir {
namespace {

// Returns an error if the job sets learning_rate in the optimizer's own message although the schedule has the rates.
absl::Status CheckRateIsNotSet(const Setting& optimizer, const Setting& schedule) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(optimizer, "kind"));
  const google::protobuf::Message& message = kind.setting.message();
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName("learning_rate");
  if (field == nullptr || field->is_repeated() || !message.GetReflection()->HasField(message, field))
    return absl::OkStatus();
  return kind.setting.Error("learning_rate",
                            absl::StrCat("is set, but ", schedule.path(), " has the rates: leave one out"));
}

absl::StatusOr<ScheduleOp> MakeWarmUp(const Setting& at, const ScheduleOp& behind, double learning_rate) {
  const auto& m = static_cast<const v1::WarmUp&>(at.message());
  RETURN_IF_ERROR(CheckSteps(at, "steps", m.steps()));
  RETURN_IF_ERROR(CheckRateNotNegative(at, "start_learning_rate", m.start_learning_rate()));
  if (!m.has_end_learning_rate() && !behind.uses_learning_rate) {
    return at.Error("", "needs end_learning_rate: the optimizer has no learning rate to end with");
  }
  const double end = m.has_end_learning_rate() ? m.end_learning_rate() : learning_rate;
  RETURN_IF_ERROR(CheckRateNotNegative(at, "end_learning_rate", end));
  return ScheduleOp{.type = "lr_warm_up",
                    .attrs = {AttrI("steps", m.steps()), AttrF("start", m.start_learning_rate()), AttrF("end", end)}};
}

}  // namespace

KindRegistry<ScheduleRule>& ScheduleRegistry() {
  static auto* const registry = new KindRegistry<ScheduleRule>("schedule");
  return *registry;
}

absl::StatusOr<std::vector<ScheduleOp>> MakeSchedule(const Setting& optimizer, double learning_rate) {
  const auto& message = static_cast<const v1::Optimizer&>(optimizer.message());
  if (!message.has_schedule()) return std::vector<ScheduleOp>();
  const Setting at = optimizer.Member(&message.schedule(), optimizer.path() + ".schedule");
  ASSIGN_OR_RETURN(const Kind kind, KindOf(at, "kind"));
  ASSIGN_OR_RETURN(const ScheduleRule* rule, ScheduleRegistry().Find(kind));
  std::vector<ScheduleOp> ops;
  ASSIGN_OR_RETURN(ScheduleOp op, (*rule)(kind.setting.message(), kind.setting, learning_rate));
  if (!op.uses_learning_rate) RETURN_IF_ERROR(CheckRateIsNotSet(optimizer, kind.setting));
  ops.push_back(std::move(op));
  if (message.schedule().has_warm_up()) {
    const Setting warm_up = at.Member(&message.schedule().warm_up(), at.path() + ".warm_up");
    ASSIGN_OR_RETURN(ScheduleOp front, MakeWarmUp(warm_up, ops[0], learning_rate));
    ops.push_back(std::move(front));
  }
  return ops;
}

absl::Status CheckSteps(const Setting& at, std::string_view field, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at least 1, got ", value));
}

absl::Status CheckRatePositive(const Setting& at, std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be positive, got ", value));
}

absl::Status CheckRateNotNegative(const Setting& at, std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must not be negative, got ", value));
}

}  // namespace weir
