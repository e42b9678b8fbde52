// square_error: loss = weight * (x - label)^2.
//
//   X        [B, 1]  f32
//   Label    [B, 1]  f32
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//
// Gradient: dx = dout * weight * 2 * (x - label).
#include <memory>

#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

SquareErrorMath MakeMath(const KernelInit&) { return {}; }
WEIR_COLUMN_LOSS_LOOPS(SquareErrorMath)

ColumnLoss Def() {
  return {.type = "square_error",
          .summary = "(x - label)^2, per example",
          .grad_summary = "dloss * weight * 2 * (x - label)",
          .flops = 3,
          .grad_flops = 4};
}

REGISTER_OP(square_error)(ColumnLossOp(Def()));
REGISTER_OP(square_error_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(square_error, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(square_error_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
