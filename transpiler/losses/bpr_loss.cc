// bpr_loss: log(1 + exp(negative - positive)), mean over the negatives. The prediction is sigmoid(positive).
#include "transpiler/losses/pair_parts.h"

namespace weir {
namespace {

absl::Status Build(const v1::BprLoss& m, ModelContext& ctx, v1::LossDesc* loss) {
  return AppendPairLoss(ctx, "bpr_loss", m.positive(), m.negative(), m.label(), m.sample_weight(), {}, loss);
}
REGISTER_LOSS(bpr_loss, v1::BprLoss, Build, PairFacts());

}  // namespace
}  // namespace weir
