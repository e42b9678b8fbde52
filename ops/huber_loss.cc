// huber_loss: with r = x - label, loss = weight * r^2 / 2 where |r| <= delta, and weight * delta * (|r| - delta / 2)
// beyond.
//
//   X        [B, 1]  f32
//   Label    [B, 1]  f32
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//   delta    float = 1, positive
//
// Gradient: dx = dout * weight * r, with r cut off at -delta and delta.
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

HuberLossMath MakeMath(const KernelInit& init) { return {static_cast<float>(init.attrs.Float("delta"))}; }
WEIR_COLUMN_LOSS_LOOPS(HuberLossMath)

absl::Status CheckAttributes(const InferContext& ctx) {
  const float delta = static_cast<float>(ctx.attrs().Float("delta"));
  if (!(delta > 0 && std::isfinite(delta)))
    return ctx.Error(absl::StrCat("delta must be positive and finite, got ", delta));
  return absl::OkStatus();
}

ColumnLoss Def() {
  return {.type = "huber_loss",
          .summary = "square up to a distance of delta, straight beyond",
          .grad_summary = "gradient of huber_loss",
          .attrs = {FloatAttr("delta", 1)},
          .check = CheckAttributes,
          .flops = 6,
          .grad_flops = 5};
}

REGISTER_OP(huber_loss)(ColumnLossOp(Def()));
REGISTER_OP(huber_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(huber_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(huber_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
