// decayed_adagrad: a = decay a + (1 - decay) g^2;  w -= lr g / (sqrt(a) + epsilon)
//
//   Param, Grad  any shape, or merged selected rows of Param for Grad
//   Moment       a, shape of Param, initially 0
//
// Lazy on rows: what a row has gathered fades only when the row is updated. Arithmetic in ops/decayed_adagrad_math.h.
#include "ops/decayed_adagrad_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

DecayedAdagradMath MathOf(const AttrReader& attrs) {
  return {.decay = attrs.Float("decay"), .epsilon = static_cast<float>(attrs.Float("epsilon"))};
}

REGISTER_OP(decayed_adagrad)
(MakeUpdateOp("decayed_adagrad", "a = decay a + (1 - decay) g^2; w -= lr g / (sqrt(a) + epsilon)",
              {FloatAttr("decay", 0.95), FloatAttr("epsilon", 1e-6)}, {{.slot = "Moment"}}, 9));
REGISTER_KERNEL(decayed_adagrad, [](const KernelInit& init) { return MakeUpdateKernel(MathOf(init.attrs)); });
REGISTER_ROW_RULE(decayed_adagrad,
                  [](const AttrReader& attrs) { return MakeRowRule("decayed_adagrad", MathOf(attrs), attrs); });

}  // namespace
}  // namespace weir
