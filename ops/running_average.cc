// running_average: w = (1 - rate) w + rate g
//
//   Param         a running average (framework/graph/running_averages.h)
//   Grad          what was measured in the step, any shape
//   LearningRate  [1]: rate, one minus the momentum
//
// Arithmetic in ops/running_average_math.h.
#include "ops/running_average_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

REGISTER_OP(running_average)(MakeUpdateOp("running_average", "w = (1 - rate) w + rate g", {}, {}, 3));
REGISTER_KERNEL(running_average, [](const KernelInit&) { return MakeUpdateKernel(RunningAverageMath()); });

}  // namespace
}  // namespace weir
