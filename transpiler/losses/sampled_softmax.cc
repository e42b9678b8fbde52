// sampled_softmax: cross entropy of the positive score among the negative ones. The prediction is sigmoid(positive).
#include "transpiler/losses/pair_parts.h"

namespace weir {
namespace {

absl::Status Build(const v1::SampledSoftmax& m, ModelContext& ctx, v1::LossDesc* loss) {
  return AppendPairLoss(ctx, "sampled_softmax", m.positive(), m.negative(), m.label(), m.sample_weight(), {}, loss);
}
REGISTER_LOSS(sampled_softmax, v1::SampledSoftmax, Build, PairFacts());

}  // namespace
}  // namespace weir
