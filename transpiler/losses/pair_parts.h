// Parts of losses of scores: what their messages have in common.
#ifndef WEIR_TRANSPILER_LOSSES_PAIR_PARTS_H_
#define WEIR_TRANSPILER_LOSSES_PAIR_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "transpiler/losses/loss.h"

namespace weir {

// Sets label and sample_weight of a loss whose examples of label 0 have no loss; without a label all are 1. Returns the
// variable [B, 1] by which the loss is multiplied, "" for none. `like`: a variable [B, 1].
absl::StatusOr<std::string> PositiveWeight(ModelContext& ctx, const std::string& label,
                                           const std::string& sample_weight, const std::string& like,
                                           v1::LossDesc* loss);

// Facts of a loss of scores.
LossFacts PairFacts();

// A loss of a positive score beside negative ones (ops/pair_loss.h). The prediction is sigmoid(positive).
absl::Status AppendPairLoss(ModelContext& ctx, const std::string& type, const std::string& positive,
                            const std::string& negative, const std::string& label, const std::string& sample_weight,
                            std::vector<v1::OpAttr> attrs, v1::LossDesc* loss);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LOSSES_PAIR_PARTS_H_
