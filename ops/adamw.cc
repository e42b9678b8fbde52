// adamw: adam (ops/adam.cc), and besides w -= lr weight_decay w, with w from before the update
//
//   Param, Grad       any shape, or merged selected rows of Param for Grad
//   Moment1, Moment2  shape of Param, initially 0
//   Step              updates so far: [1], or one per row when Grad comes as rows
//
// On rows only those of the step decay. Arithmetic in ops/adamw_math.h.
#include "ops/adamw_math.h"
#include "ops/known_biases.h"
#include "ops/update_op.h"

namespace weir {
namespace {

AdamWMath MathOf(const AttrReader& attrs, const AdamMath::Bias* biases, int known) {
  return {.adam = {.beta1 = attrs.Float("beta1"),
                   .beta2 = attrs.Float("beta2"),
                   .epsilon = static_cast<float>(attrs.Float("epsilon")),
                   .biases = biases,
                   .known = known},
          .weight_decay = static_cast<float>(attrs.Float("weight_decay"))};
}
using AdamWKernel = BiasedKernel<AdamWMath, MathOf>;
using AdamWRowRule = BiasedRowRule<AdamWMath, MathOf>;

REGISTER_OP(adamw)
(MakeUpdateOp("adamw", "adam with decoupled weight decay",
              {FloatAttr("beta1", 0.9), FloatAttr("beta2", 0.999), FloatAttr("epsilon", 1e-8),
               FloatAttr("weight_decay", 0.01)},
              {{.slot = "Moment1"}, {.slot = "Moment2"}, {.slot = "Step", .like = StateDef::kCount}}, 14));
REGISTER_KERNEL(adamw, MakeKernel<AdamWKernel>);
REGISTER_ROW_RULE(adamw, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowRule>> {
  return std::unique_ptr<RowRule>(new AdamWRowRule("adamw", attrs));
});

}  // namespace
}  // namespace weir
