// pairwise_hinge_loss: max(0, margin - positive + negative), mean over the negatives. The prediction is
// sigmoid(positive).
#include "absl/strings/str_cat.h"
#include "transpiler/losses/pair_parts.h"

namespace weir {
namespace {

absl::Status Build(const v1::PairwiseHingeLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  if (!(m.margin() > 0)) return ctx.Error("margin", absl::StrCat("must be positive, got ", m.margin()));
  return AppendPairLoss(ctx, "pairwise_hinge_loss", m.positive(), m.negative(), m.label(), m.sample_weight(),
                        {AttrF("margin", m.margin())}, loss);
}
REGISTER_LOSS(pairwise_hinge_loss, v1::PairwiseHingeLoss, Build, PairFacts());

}  // namespace
}  // namespace weir
