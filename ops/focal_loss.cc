// focal_loss (Lin et al. 2017): cross entropy of logits in which examples that are already right count less. With
// p = sigmoid(x): loss = weight * (-label * a * (1 - p)^gamma * log(p) - (1 - label) * b * p^gamma * log(1 - p)), where
// a = alpha and b = 1 - alpha, or both 1 for an alpha below 0.
//
//   X        [B, 1]  f32, logits
//   Label    [B, 1]  f32, probabilities (0 or 1)
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//   gamma    float = 2, not negative
//   alpha    float = -1, at most 1
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

FocalLossMath MakeMath(const KernelInit& init) {
  const float alpha = static_cast<float>(init.attrs.Float("alpha"));
  return {.gamma = static_cast<float>(init.attrs.Float("gamma")),
          .positive = alpha < 0 ? 1 : alpha,
          .negative = alpha < 0 ? 1 : 1 - alpha};
}
WEIR_COLUMN_LOSS_LOOPS(FocalLossMath)

absl::Status CheckAttributes(const InferContext& ctx) {
  const double gamma = ctx.attrs().Float("gamma"), alpha = ctx.attrs().Float("alpha");
  if (!(gamma >= 0 && std::isfinite(static_cast<float>(gamma)))) {
    return ctx.Error(absl::StrCat("gamma must be finite and not negative, got ", gamma));
  }
  if (!(alpha <= 1)) return ctx.Error(absl::StrCat("alpha must be at most 1, got ", alpha));
  return absl::OkStatus();
}

ColumnLoss Def() {
  return {.type = "focal_loss",
          .summary = "cross entropy of logits times (1 - probability of the label)^gamma",
          .grad_summary = "gradient of focal_loss",
          .attrs = {FloatAttr("gamma", 2), FloatAttr("alpha", -1)},
          .check = CheckAttributes,
          .flops = 110,
          .grad_flops = 140};
}

REGISTER_OP(focal_loss)(ColumnLossOp(Def()));
REGISTER_OP(focal_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(focal_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(focal_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
