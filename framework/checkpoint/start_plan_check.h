// Checks a StartPlan that came over the wire, so that it can be carried out without further checks of its numbers.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_START_PLAN_CHECK_H_
#define WEIR_FRAMEWORK_CHECKPOINT_START_PLAN_CHECK_H_

#include "absl/status/status.h"
#include "proto/start.pb.h"

namespace weir {

// Returns InvalidArgument unless every index of a source exists, names are unique, dims and their products fit int64,
// each part and each range has all axes, runs ascend and lie within both dims, and no element is in two parts of a
// parameter.
absl::Status CheckStartPlan(const v1::StartPlan& plan);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_START_PLAN_CHECK_H_
