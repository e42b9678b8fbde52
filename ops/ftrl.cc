// ftrl: FTRL-proximal (McMahan et al. 2013), per coordinate
//
//   n' = n + g^2;  z += g - (n'^-p - n^-p) / lr * w,  p = lr_power
//   w = 0 if |z| <= l1, else (sign(z) l1 - z) / (n'^-p / lr + 2 l2)
//
//   Param, Grad         any shape, or merged selected rows of Param for Grad
//   SquaredAccumulator  n, shape of Param, initially initial_accumulator
//   LinearAccumulator   z, shape of Param, initially 0
//
// Arithmetic in ops/ftrl_math.h.
#include "ops/ftrl_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

template <bool kSquareRoot>
FtrlMath<kSquareRoot> MathOf(const AttrReader& attrs) {
  return {.l1 = static_cast<float>(attrs.Float("l1")),
          .l2 = static_cast<float>(attrs.Float("l2")),
          .lr_power = attrs.Float("lr_power")};
}

bool IsSquareRoot(const AttrReader& attrs) { return attrs.Float("lr_power") == -0.5; }

absl::StatusOr<std::unique_ptr<OpKernel>> Kernel(const KernelInit& init) {
  if (IsSquareRoot(init.attrs)) return MakeUpdateKernel(MathOf<true>(init.attrs));
  return MakeUpdateKernel(MathOf<false>(init.attrs));
}

absl::StatusOr<std::unique_ptr<RowRule>> Rule(const AttrReader& attrs) {
  if (IsSquareRoot(attrs)) return MakeRowRule("ftrl", MathOf<true>(attrs), attrs);
  return MakeRowRule("ftrl", MathOf<false>(attrs), attrs);
}

REGISTER_OP(ftrl)
(MakeUpdateOp("ftrl", "FTRL-proximal: sparse weights by l1",
              {FloatAttr("l1", 0), FloatAttr("l2", 0), FloatAttr("lr_power", -0.5),
               FloatAttr("initial_accumulator", 0.1)},
              {{.slot = "SquaredAccumulator", .initial_attr = "initial_accumulator"}, {.slot = "LinearAccumulator"}},
              20));
REGISTER_KERNEL(ftrl, Kernel);
REGISTER_ROW_RULE(ftrl, Rule);

}  // namespace
}  // namespace weir
