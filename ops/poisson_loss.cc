// poisson_loss: loss = weight * (e^x - label * x), for counts whose expectation is e^x. The term of the label alone,
// log(label!), is left out: it has no gradient.
//
//   X        [B, 1]  f32, logarithm of the rate
//   Label    [B, 1]  f32, counts
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//
// Gradient: dx = dout * weight * (e^x - label).
#include <memory>

#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

PoissonLossMath MakeMath(const KernelInit&) { return {}; }
WEIR_COLUMN_LOSS_LOOPS(PoissonLossMath)

ColumnLoss Def() {
  return {.type = "poisson_loss",
          .summary = "e^x - label * x, per example",
          .grad_summary = "dloss * weight * (e^x - label)",
          .flops = 25,
          .grad_flops = 25};
}

REGISTER_OP(poisson_loss)(ColumnLossOp(Def()));
REGISTER_OP(poisson_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(poisson_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(poisson_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
