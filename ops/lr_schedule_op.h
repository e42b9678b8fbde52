// What the operators of learning-rate schedules share: signature, shape rule, kernel. Role LR_SCHEDULE; they run on
// servers, once before the updates of a step.
//
//   Step  int64 [1]    t: updates made before this one
//   X     float64 [1]  only behind another schedule: its rate
//   Out   float64 [1]  the rate
//
// In double from t alone, so the rate of a step is a function of the step.
#ifndef WEIR_OPS_LR_SCHEDULE_OP_H_
#define WEIR_OPS_LR_SCHEDULE_OP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"

namespace weir {

// The rate at step t; x: of the schedule before, 0 when there is none.
using RateFunction = std::function<double(int64_t t, double x)>;

struct ScheduleOpOptions {
  std::string type;
  std::string summary;
  std::vector<AttrDef> attrs;
  // Has the slot X.
  bool behind_another = false;
  // Refuses attributes, beyond their types; empty: none.
  std::function<absl::Status(InferContext&)> check = {};
};
OpDef MakeScheduleOp(ScheduleOpOptions options);

absl::StatusOr<std::unique_ptr<OpKernel>> MakeScheduleKernel(RateFunction rate);

// OK when the variable of a slot is dense, of the type and has one element.
absl::Status ExpectOne(const InferContext& ctx, std::string_view slot, DType dtype);
// For kernels: FailedPrecondition when an input has no value, InvalidArgument when it is not one element of the type (a
// startup program may give it anything).
absl::Status CheckOne(const Tensor& x, std::string_view what, DType dtype);

}  // namespace weir

#endif  // WEIR_OPS_LR_SCHEDULE_OP_H_
