// sampled_softmax: -log of the positive's part of the softmax over it and the negatives.
//
// Slots: ops/pair_loss.h.
#include <memory>

#include "ops/pair_loss.h"
#include "ops/row_loss_math.h"

namespace weir {
namespace {

SampledSoftmaxMath MakeMath(const KernelInit&) { return {}; }
WEIR_PAIR_LOSS_LOOPS(SampledSoftmaxMath)

PairLoss Def() {
  return {.type = "sampled_softmax",
          .summary = "cross entropy of the positive among the negatives",
          .grad_summary = "gradients of sampled_softmax",
          .flops = 25,
          .grad_flops = 27};
}

REGISTER_OP(sampled_softmax)(PairLossOp(Def()));
REGISTER_OP(sampled_softmax_grad)(PairLossGradOp(Def()));
REGISTER_KERNEL(sampled_softmax, MakeKernel<PairLossKernel<Loops>>);
REGISTER_KERNEL(sampled_softmax_grad, MakeKernel<PairLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
