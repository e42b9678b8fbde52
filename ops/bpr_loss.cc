// bpr_loss (Rendle et al. 2009): mean over the negatives of log(1 + exp(negative - positive)).
//
// Slots: ops/pair_loss.h.
#include <memory>

#include "ops/pair_loss.h"
#include "ops/row_loss_math.h"

namespace weir {
namespace {

using Math = PairLossMath<BprTerm>;
Math MakeMath(const KernelInit&) { return {}; }
WEIR_PAIR_LOSS_LOOPS(Math)

PairLoss Def() {
  return {.type = "bpr_loss",
          .summary = "mean of log(1 + exp(negative - positive))",
          .grad_summary = "gradients of bpr_loss",
          .flops = 55,
          .grad_flops = 55};
}

REGISTER_OP(bpr_loss)(PairLossOp(Def()));
REGISTER_OP(bpr_loss_grad)(PairLossGradOp(Def()));
REGISTER_KERNEL(bpr_loss, MakeKernel<PairLossKernel<Loops>>);
REGISTER_KERNEL(bpr_loss_grad, MakeKernel<PairLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
