// sgd: w -= lr * g
//
//   Param, Grad  any shape, or merged selected rows of Param for Grad
//
// No state. Arithmetic in ops/sgd_math.h.
#include "ops/sgd_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

REGISTER_OP(sgd)(MakeUpdateOp("sgd", "w -= lr g", {}, {}, 2));
REGISTER_KERNEL(sgd, [](const KernelInit&) { return MakeUpdateKernel(SgdMath{}); });
REGISTER_ROW_RULE(sgd, [](const AttrReader& attrs) { return MakeRowRule("sgd", SgdMath{}, attrs); });

}  // namespace
}  // namespace weir
