// Losses of a job, registered by message. One file per kind; a user's own is registered like a layer
// (transpiler/layers/layer.h).
#ifndef WEIR_TRANSPILER_LOSSES_LOSS_H_
#define WEIR_TRANSPILER_LOSSES_LOSS_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/graph/loss_facts.h"
#include "proto/job.pb.h"
#include "transpiler/base/setting.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Appends the loss's operators and describes their results in `loss`: var [B, 1] (ctx.name() + ".loss" by custom),
// prediction, label, sample_weight. name, weight and LossFacts::kind are already set. Operators with role LOSS are
// those that compute the loss itself.
using LossRule = std::function<absl::Status(const google::protobuf::Message&, ModelContext&, v1::LossDesc* loss)>;
KindRegistry<LossRule>& LossRegistry();

template <typename M>
struct LossRegistrar {
  using Function = absl::Status (*)(const M&, ModelContext&, v1::LossDesc*);
  LossRegistrar(const std::string& key, Function rule, LossFacts facts = {}) {
    LossRegistry().Register(key, [rule, kind = facts.kind](const google::protobuf::Message& message, ModelContext& ctx,
                                                           v1::LossDesc* loss) {
      if (kind.has_value()) loss->set_kind(*kind);
      return rule(static_cast<const M&>(message), ctx, loss);
    });
    RegisterLossFacts(key, std::move(facts));
  }
};
// Use at namespace scope; after the rule come the facts. `name`: the member of v1::Loss.kind.
#define REGISTER_LOSS(name, Message, ...) \
  static const ::weir::LossRegistrar<Message> weir_loss_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_LOSS(name, Message, ...) \
  static const ::weir::LossRegistrar<Message> weir_loss_##name(Message::descriptor()->full_name(), __VA_ARGS__)

// Operator that computes a loss of each sample: `x` in slot x_slot, label, and sample weight if it is named.
struct LossOp {
  std::string type;
  std::string x_slot;
  std::string x;
  // Fields of the loss's message, for errors.
  std::string x_field;
  std::string label;
  std::string sample_weight;
  std::string loss_slot = "Out";
  // Further outputs.
  std::vector<std::pair<std::string, std::vector<std::string>>> outputs = {};
  std::vector<v1::OpAttr> attrs = {};
};
// Label and factor of a loss whose label may be missing in the data.
struct KnownLabel {
  std::string label;   // 0 where it is missing
  std::string weight;  // [B, 1]: sample_weight, or 1; 0 where the label is missing
};
// Appends the operator that makes them. Errors: the label is not [B, 1], or no variable of the data.
absl::StatusOr<KnownLabel> AppendKnownLabel(ModelContext& ctx, const std::string& label,
                                            const std::string& sample_weight);

// Appends the operator with role LOSS and sets var, label and sample_weight of `loss`.
absl::Status AppendLoss(ModelContext& ctx, LossOp op, v1::LossDesc* loss);

// Loss.learned_weight: appends the operator whose result training minimises in place of a loss that has been built,
// with its parameter "<loss>.log_variance", and makes it the var of `loss`. Errors: the loss is not [B, 1].
absl::Status AppendLearnedWeight(ModelContext& ctx, v1::LossDesc* loss);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LOSSES_LOSS_H_
