// Optimizers of the job, by message: what becomes of `optimizer { adam { ... } }`.
//
// One file per optimizer. A user's own is a message of his own, an operator registered with is_optimizer, and
//   REGISTER_CUSTOM_OPTIMIZER(my_rule, my::Rule, [](const my::Rule& m, const Setting& at) -> absl::StatusOr<UpdateRule>
//   {...});
#ifndef WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_
#define WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/optimizer.pb.h"
#include "proto/program.pb.h"
#include "transpiler/setting.h"

namespace weir {

// An input of an update op that is the norm of something of the whole parameter, cut or not.
struct NormInput {
  std::string slot;
  enum Of { kParameter, kGradient, kDirection } of = kParameter;
  // kDirection: of the output Out of this operator, whose inputs are those of the update without LearningRate and
  // norms, and whose attributes are the update's.
  std::string direction_op = "";
};

// The operator that updates a parameter. Its states are in the operator's registration (OpDef::state).
struct UpdateRule {
  std::string op_type;
  std::vector<v1::OpAttr> attrs;
  double learning_rate = 0;
  std::vector<NormInput> norms = {};
  // Path of the setting that makes it a rule for distributed tables alone; empty: for all parameters.
  std::string only_tables = "";
};

// Checks the settings: errors through Setting::Error.
using OptimizerRule = std::function<absl::StatusOr<UpdateRule>(const google::protobuf::Message&, const Setting&)>;
KindRegistry<OptimizerRule>& OptimizerRegistry();

// `optimizer`: a v1::Optimizer and its path.
absl::StatusOr<UpdateRule> MakeUpdateRule(const Setting& optimizer);

// For rules: what is computed with as a 32-bit float is finite as one, and zero only if it was written as zero.
absl::Status CheckFloat(const Setting& at, std::string_view field, double value);
// The same, and above zero; not below zero.
absl::Status CheckPositive(const Setting& at, std::string_view field, double value);
absl::Status CheckNotNegative(const Setting& at, std::string_view field, double value);
// In [0, 1), as a 32-bit float too.
absl::Status CheckDecay(const Setting& at, std::string_view field, double value);

template <typename M>
struct OptimizerRegistrar {
  using Function = absl::StatusOr<UpdateRule> (*)(const M&, const Setting&);
  OptimizerRegistrar(const std::string& key, Function rule) {
    OptimizerRegistry().Register(key, [rule](const google::protobuf::Message& message, const Setting& at) {
      return rule(static_cast<const M&>(message), at);
    });
  }
};
// At namespace scope. `name`: the member of v1::Optimizer.kind.
#define REGISTER_OPTIMIZER(name, Message, ...) \
  static const ::weir::OptimizerRegistrar<Message> weir_optimizer_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_OPTIMIZER(name, Message, ...)                                                        \
  static const ::weir::OptimizerRegistrar<Message> weir_optimizer_##name(Message::descriptor()->full_name(), \
                                                                         __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_
