// Shared code of the learning-rate schedule operators: signature, shape rule, kernel. They have role LR_SCHEDULE and
// run on servers, once before the updates of a step.
//
//   Step  int64 [1]    t: updates made before this one
//   X     float64 [1]  only after another schedule: its rate
//   Out   float64 [1]  the rate
//
// Rates are computed in double from t alone, so the rate of a step is a function of the step.
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

// Returns the rate at step t; x is the rate of the preceding schedule, 0 if there is none.
using RateFunction = std::function<double(int64_t t, double x)>;

struct ScheduleOpOptions {
  std::string type;
  std::string summary;
  std::vector<AttrDef> attrs;
  // True if the op has the slot X.
  bool behind_another = false;
  // Checks attributes beyond their types; may be empty.
  std::function<absl::Status(InferContext&)> check = {};
};
// Returns the definition of a schedule operator, for REGISTER_OP.
OpDef MakeScheduleOp(ScheduleOpOptions options);

// Returns the kernel that writes rate(t, x) to Out.
absl::StatusOr<std::unique_ptr<OpKernel>> MakeScheduleKernel(RateFunction rate);

// Returns OK if the variable of a slot is dense, has the type and one element, else InvalidArgument.
absl::Status ExpectOne(const InferContext& ctx, std::string_view slot, DType dtype);
// Checks a kernel's input: FailedPrecondition if it has no value, InvalidArgument if it is not one element of the type
// (a startup program may produce any value).
absl::Status CheckOne(const Tensor& x, std::string_view what, DType dtype);

}  // namespace weir

#endif  // WEIR_OPS_LR_SCHEDULE_OP_H_
