// momentum: v = mu v + g;  w -= lr v, with use_nesterov w -= lr (g + mu v)
//
//   Param, Grad  any shape, or merged selected rows of Param for Grad
//   Velocity     shape of Param, initially 0
//
// Lazy on rows: the velocity of a row that is not in the gradient neither decays nor moves the row. Arithmetic in
// ops/momentum_math.h.
#include "ops/momentum_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

template <bool kNesterov>
MomentumMath<kNesterov> MathOf(const AttrReader& attrs) {
  return {.mu = static_cast<float>(attrs.Float("mu"))};
}

absl::StatusOr<std::unique_ptr<OpKernel>> Kernel(const KernelInit& init) {
  if (init.attrs.Bool("use_nesterov")) return MakeUpdateKernel(MathOf<true>(init.attrs));
  return MakeUpdateKernel(MathOf<false>(init.attrs));
}

absl::StatusOr<std::unique_ptr<RowRule>> Rule(const AttrReader& attrs) {
  if (attrs.Bool("use_nesterov")) return MakeRowRule("momentum", MathOf<true>(attrs), attrs);
  return MakeRowRule("momentum", MathOf<false>(attrs), attrs);
}

REGISTER_OP(momentum)
(MakeUpdateOp("momentum", "v = mu v + g; w -= lr v, or Nesterov's form",
              {FloatAttr("mu", 0.9), BoolAttr("use_nesterov", false)}, {{.slot = "Velocity"}}, 5));
REGISTER_KERNEL(momentum, Kernel);
REGISTER_ROW_RULE(momentum, Rule);

}  // namespace
}  // namespace weir
