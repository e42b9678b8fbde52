// hinge_loss: loss = weight * max(0, margin - s * x), where s is 1 for a label of one half and more, else -1.
//
//   X        [B, 1]  f32, scores
//   Label    [B, 1]  f32, 0 or 1
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//   margin   float = 1, positive
//
// Gradient: dx = -dout * weight * s where the loss is positive, else 0.
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

HingeLossMath MakeMath(const KernelInit& init) { return {static_cast<float>(init.attrs.Float("margin"))}; }
WEIR_COLUMN_LOSS_LOOPS(HingeLossMath)

absl::Status CheckAttributes(const InferContext& ctx) {
  const float margin = static_cast<float>(ctx.attrs().Float("margin"));
  if (!(margin > 0 && std::isfinite(margin)))
    return ctx.Error(absl::StrCat("margin must be positive and finite, got ", margin));
  return absl::OkStatus();
}

ColumnLoss Def() {
  return {.type = "hinge_loss",
          .summary = "max(0, margin - s * x), s = 1 or -1",
          .grad_summary = "gradient of hinge_loss",
          .attrs = {FloatAttr("margin", 1)},
          .check = CheckAttributes,
          .flops = 4,
          .grad_flops = 4};
}

REGISTER_OP(hinge_loss)(ColumnLossOp(Def()));
REGISTER_OP(hinge_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(hinge_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(hinge_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
