// rmsprop, rmsprop_centered
//
//   rmsprop           r = rho r + (1 - rho) g^2;  v = mu v + lr g / sqrt(r + epsilon);  w -= v
//   rmsprop_centered  the same with s = rho s + (1 - rho) g and sqrt(r - s^2 + epsilon)
//
//   Param, Grad  any shape, or merged selected rows of Param for Grad
//   MeanSquare   r; MeanGrad (centered only) s; Moment v: shape of Param, initially 0
//
// Lazy on rows. Arithmetic in ops/rmsprop_math.h.
#include "ops/rmsprop_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

template <typename Math>
Math MathOf(const AttrReader& attrs) {
  Math math;
  math.rho = attrs.Float("rho");
  math.mu = static_cast<float>(attrs.Float("mu"));
  math.epsilon = static_cast<float>(attrs.Float("epsilon"));
  return math;
}

std::vector<AttrDef> RmspropAttrs() { return {FloatAttr("rho", 0.95), FloatAttr("mu", 0), FloatAttr("epsilon", 1e-6)}; }

REGISTER_OP(rmsprop)
(MakeUpdateOp("rmsprop", "v = mu v + lr g / sqrt(r + epsilon); w -= v", RmspropAttrs(),
              {{.slot = "MeanSquare"}, {.slot = "Moment"}}, 10));
REGISTER_KERNEL(rmsprop, [](const KernelInit& init) { return MakeUpdateKernel(MathOf<RmspropMath>(init.attrs)); });
REGISTER_ROW_RULE(rmsprop,
                  [](const AttrReader& attrs) { return MakeRowRule("rmsprop", MathOf<RmspropMath>(attrs), attrs); });

REGISTER_OP(rmsprop_centered)
(MakeUpdateOp("rmsprop_centered", "v = mu v + lr g / sqrt(r - s^2 + epsilon); w -= v", RmspropAttrs(),
              {{.slot = "MeanSquare"}, {.slot = "MeanGrad"}, {.slot = "Moment"}}, 15));
REGISTER_KERNEL(rmsprop_centered,
                [](const KernelInit& init) { return MakeUpdateKernel(MathOf<CenteredRmspropMath>(init.attrs)); });
REGISTER_ROW_RULE(rmsprop_centered, [](const AttrReader& attrs) {
  return MakeRowRule("rmsprop_centered", MathOf<CenteredRmspropMath>(attrs), attrs);
});

}  // namespace
}  // namespace weir
