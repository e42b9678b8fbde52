// sigmoid_cross_entropy_with_logits: loss = weight * (log(1 + e^x) - x * label), computed as
// (max(x, 0) - x * label) + log(1 + e^-|x|), so that no logit overflows and a small loss keeps its digits.
//
//   X        [B, 1]  f32, logits
//   Label    [B, 1]  f32, probabilities (0 or 1)
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//
// Gradient: dx = dout * weight * (sigmoid(x) - label).
#include <memory>

#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

SigmoidCrossEntropyMath MakeMath(const KernelInit&) { return {}; }
WEIR_COLUMN_LOSS_LOOPS(SigmoidCrossEntropyMath)

ColumnLoss Def() {
  return {.type = "sigmoid_cross_entropy_with_logits",
          .summary = "log(1 + e^x) - x * label, per example",
          .grad_summary = "dloss * weight * (sigmoid(x) - label)",
          .flops = 60,
          .grad_flops = 30};
}

REGISTER_OP(sigmoid_cross_entropy_with_logits)(ColumnLossOp(Def()));
REGISTER_OP(sigmoid_cross_entropy_with_logits_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(sigmoid_cross_entropy_with_logits, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(sigmoid_cross_entropy_with_logits_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
