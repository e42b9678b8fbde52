// Learning-rate schedules of the job, registered by message: rules for `schedule { cosine { ... } }`.
//
// One file per schedule. A schedule is one operator: input Step (int64 [1], t: number of updates made before this one),
// output Out (float64 [1], the rate). A user's own is a user-defined message, such an operator, and
//
//   REGISTER_CUSTOM_SCHEDULE(mine, my::Schedule, [](const my::Schedule& m, const Setting& at,
//                                                   double learning_rate) -> absl::StatusOr<ScheduleOp> {...});
#ifndef WEIR_TRANSPILER_SCHEDULES_SCHEDULE_H_
#define WEIR_TRANSPILER_SCHEDULES_SCHEDULE_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/optimizer.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

struct ScheduleOp {
  std::string type;
  std::vector<v1::OpAttr> attrs;
  // False: the schedule determines the rates alone, and the optimizer must not set one.
  bool uses_learning_rate = true;
};

// Checks the settings and makes the schedule; errors through Setting::Error. `learning_rate`: the optimizer's.
using ScheduleRule =
    std::function<absl::StatusOr<ScheduleOp>(const google::protobuf::Message&, const Setting&, double learning_rate)>;
KindRegistry<ScheduleRule>& ScheduleRegistry();

// Returns the schedule of `optimizer`, a v1::Optimizer and its path. Each op after the first also reads, in slot X, the
// rate of the op before it. Empty: the learning rate is constant.
absl::StatusOr<std::vector<ScheduleOp>> MakeSchedule(const Setting& optimizer, double learning_rate);

// Check, for rules, that the value is at least 1; finite and above zero; finite and not below zero.
absl::Status CheckSteps(const Setting& at, std::string_view field, int64_t value);
absl::Status CheckRatePositive(const Setting& at, std::string_view field, double value);
absl::Status CheckRateNotNegative(const Setting& at, std::string_view field, double value);

template <typename M>
struct ScheduleRegistrar {
  using Function = absl::StatusOr<ScheduleOp> (*)(const M&, const Setting&, double learning_rate);
  ScheduleRegistrar(const std::string& key, Function rule) {
    ScheduleRegistry().Register(
        key, [rule](const google::protobuf::Message& message, const Setting& at, double learning_rate) {
          return rule(static_cast<const M&>(message), at, learning_rate);
        });
  }
};
// Use at namespace scope. `name`: the member of v1::Schedule.kind.
#define REGISTER_SCHEDULE(name, Message, ...) \
  static const ::weir::ScheduleRegistrar<Message> weir_schedule_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_SCHEDULE(name, Message, ...) \
  static const ::weir::ScheduleRegistrar<Message> weir_schedule_##name(Message::descriptor()->full_name(), __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_SCHEDULES_SCHEDULE_H_
