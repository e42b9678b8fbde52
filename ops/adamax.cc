// adamax: adam by the largest gradient
//
//   m = b1 m + (1 - b1) g;  u = max(b2 u + epsilon, |g|);  w -= lr / (1 - b1^t) * m / u
//
//   Param, Grad      any shape, or merged selected rows of Param for Grad
//   Moment, InfNorm  m and u, shape of Param, initially 0
//   Step             t, updates so far: [1], or one per row when Grad comes as rows
//
// Arithmetic in ops/adamax_math.h.
#include "ops/adamax_math.h"
#include "ops/known_biases.h"
#include "ops/update_op.h"

namespace weir {
namespace {

REGISTER_OP(adamax)
(MakeUpdateOp("adamax", "w -= lr / (1 - b1^t) m / u, u the largest gradient, fading",
              {FloatAttr("beta1", 0.9), FloatAttr("beta2", 0.999), FloatAttr("epsilon", 1e-8)},
              {{.slot = "Moment"}, {.slot = "InfNorm"}, {.slot = "Step", .like = StateDef::kCount}}, 10));
REGISTER_KERNEL(adamax, MakeKernel<BiasedKernel<AdamaxMath>>);
REGISTER_ROW_RULE(adamax, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowRule>> {
  return std::unique_ptr<RowRule>(new BiasedRowRule<AdamaxMath>("adamax", attrs));
});

}  // namespace
}  // namespace weir
