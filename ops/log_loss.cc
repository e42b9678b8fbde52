// log_loss: loss = weight * (-label * log(p + epsilon) - (1 - label) * log(1 - p + epsilon)).
//
//   Predicted  [B, 1]  f32, probabilities
//   Label      [B, 1]  f32, probabilities (0 or 1)
//   Weight?    [B, 1]  f32
//   Loss       [B, 1]  f32
//   epsilon    float = 1e-4, not negative
//
// Gradient: dp = dloss * weight * ((1 - label) / (1 - p + epsilon) - label / (p + epsilon)).
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"

namespace weir {
namespace {

LogLossMath MakeMath(const KernelInit& init) { return {static_cast<float>(init.attrs.Float("epsilon"))}; }
WEIR_COLUMN_LOSS_LOOPS(LogLossMath)

absl::Status CheckAttributes(const InferContext& ctx) {
  const double epsilon = ctx.attrs().Float("epsilon");
  if (!(epsilon >= 0)) return ctx.Error(absl::StrCat("epsilon must not be negative, got ", epsilon));
  return absl::OkStatus();
}

// Value of PaddlePaddle Fluid.
constexpr double kEpsilon = 1e-4;

ColumnLoss Def() {
  return {.type = "log_loss",
          .summary = "cross entropy of probabilities, per example",
          .grad_summary = "gradient of log_loss",
          .x = "Predicted",
          .out = "Loss",
          .attrs = {FloatAttr("epsilon", kEpsilon)},
          .check = CheckAttributes,
          .flops = 60,
          .grad_flops = 10};
}

REGISTER_OP(log_loss)(ColumnLossOp(Def()));
REGISTER_OP(log_loss_grad)(ColumnLossGradOp(Def()));
REGISTER_KERNEL(log_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(log_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
