// adam: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr mhat / (sqrt(vhat) + epsilon)
//
//   Param, Grad       any shape, or merged selected rows of Param for Grad
//   Moment1, Moment2  m and v, shape of Param, initially 0
//   Step              t, updates so far: [1], or one per row when Grad comes as rows
//
// mhat = m / (1 - b1^t), vhat = v / (1 - b2^t). Lazy on rows: t counts the updates of the row, so a row's first update
// is a full step whenever it comes. Counts are float32, exact up to 2^24 updates. Arithmetic in ops/adam_math.h.
#include "ops/adam_math.h"
#include "ops/known_biases.h"
#include "ops/update_op.h"

namespace weir {
namespace {

REGISTER_OP(adam)
(MakeUpdateOp("adam", "w -= lr mhat / (sqrt(vhat) + epsilon)",
              {FloatAttr("beta1", 0.9), FloatAttr("beta2", 0.999), FloatAttr("epsilon", 1e-8)},
              {{.slot = "Moment1"}, {.slot = "Moment2"}, {.slot = "Step", .like = StateDef::kCount}}, 12));
REGISTER_KERNEL(adam, MakeKernel<BiasedKernel<AdamMath>>);
REGISTER_ROW_RULE(adam, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowRule>> {
  return std::unique_ptr<RowRule>(new BiasedRowRule<AdamMath>("adam", attrs));
});

}  // namespace
}  // namespace weir
