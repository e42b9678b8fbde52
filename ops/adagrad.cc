// adagrad: a += g^2;  w -= lr g / (sqrt(a) + epsilon)
//
//   Param, Grad  any shape, or merged selected rows of Param for Grad
//   Moment       a, shape of Param, initially initial_accumulator
//
// Arithmetic in ops/adagrad_math.h.
#include "ops/adagrad_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

AdagradMath MathOf(const AttrReader& attrs) { return {.epsilon = static_cast<float>(attrs.Float("epsilon"))}; }

REGISTER_OP(adagrad)
(MakeUpdateOp("adagrad", "a += g^2; w -= lr g / (sqrt(a) + epsilon)",
              {FloatAttr("epsilon", 1e-6), FloatAttr("initial_accumulator", 0)},
              {{.slot = "Moment", .initial_attr = "initial_accumulator"}}, 7));
REGISTER_KERNEL(adagrad, [](const KernelInit& init) { return MakeUpdateKernel(MathOf(init.attrs)); });
REGISTER_ROW_RULE(adagrad, [](const AttrReader& attrs) { return MakeRowRule("adagrad", MathOf(attrs), attrs); });

}  // namespace
}  // namespace weir
