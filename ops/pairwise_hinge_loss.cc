// pairwise_hinge_loss: mean over the negatives of max(0, margin - positive + negative).
//
// Slots: ops/pair_loss.h. margin: float = 1, above 0.
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/pair_loss.h"
#include "ops/row_loss_math.h"

namespace weir {
namespace {

using Math = PairLossMath<PairwiseHingeTerm>;
Math MakeMath(const KernelInit& init) { return {{.margin = static_cast<float>(init.attrs.Float("margin"))}}; }
WEIR_PAIR_LOSS_LOOPS(Math)

PairLoss Def() {
  return {.type = "pairwise_hinge_loss",
          .summary = "mean of max(0, margin - positive + negative)",
          .grad_summary = "gradients of pairwise_hinge_loss",
          .attrs = {FloatAttr("margin", 1)},
          .check = [](const InferContext& ctx) -> absl::Status {
            const auto margin = static_cast<float>(ctx.attrs().Float("margin"));
            if (margin > 0 && std::isfinite(margin)) return absl::OkStatus();
            return ctx.Error(absl::StrCat("margin must be positive and finite, got ", margin));
          },
          .flops = 4,
          .grad_flops = 5};
}

REGISTER_OP(pairwise_hinge_loss)(PairLossOp(Def()));
REGISTER_OP(pairwise_hinge_loss_grad)(PairLossGradOp(Def()));
REGISTER_KERNEL(pairwise_hinge_loss, MakeKernel<PairLossKernel<Loops>>);
REGISTER_KERNEL(pairwise_hinge_loss_grad, MakeKernel<PairLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
