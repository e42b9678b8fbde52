// quantile_loss: with r = label - x, loss = weight * max(quantile * r, (quantile - 1) * r). Its minimum is the quantile
// of the labels.
//
//   X         [B, 1]  f32
//   Label     [B, 1]  f32
//   Weight?   [B, 1]  f32
//   Out       [B, 1]  f32
//   quantile  float = 0.5, between 0 and 1
//
// Gradient: dx = dout * weight * (-quantile below the label, 1 - quantile above, 0 at it).
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

QuantileLossMath MakeMath(const KernelInit& init) { return {static_cast<float>(init.attrs.Float("quantile"))}; }
WEIR_COLUMN_LOSS_LOOPS(QuantileLossMath)

absl::Status CheckAttributes(const InferContext& ctx) {
  const float quantile = static_cast<float>(ctx.attrs().Float("quantile"));
  if (!(quantile > 0 && quantile < 1))
    return ctx.Error(absl::StrCat("quantile must be between 0 and 1, got ", quantile));
  return absl::OkStatus();
}

ColumnLoss Def() {
  return {.type = "quantile_loss",
          .summary = "max(quantile * r, (quantile - 1) * r), r = label - x",
          .grad_summary = "gradient of quantile_loss",
          .attrs = {FloatAttr("quantile", 0.5)},
          .check = CheckAttributes,
          .flops = 4,
          .grad_flops = 4};
}

REGISTER_OP(quantile_loss)(ColumnLossOp(Def()));
REGISTER_OP(quantile_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(quantile_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(quantile_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
