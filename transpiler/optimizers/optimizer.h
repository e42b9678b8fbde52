// Optimizers of the job, registered by message: rules for `optimizer { adam { ... } }`.
//
// One file per optimizer. A user's own is a user-defined message, an operator registered with is_optimizer, and
//
//   REGISTER_CUSTOM_OPTIMIZER(my_rule, my::Rule,
//                             [](const my::Rule& m, const Setting& at) -> absl::StatusOr<UpdateRule> {...});
#ifndef WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_
#define WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/optimizer.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

// Input of an update op: a norm over the whole parameter, even if that is cut into blocks.
struct NormInput {
  std::string slot;
  enum Of { kParameter, kGradient, kDirection } of = kParameter;
  // Operator whose output Out has the norm, for kDirection. Its inputs are those of the update without LearningRate and
  // norms, and its attributes are the update's.
  std::string direction_op = "";
};

// Operator that updates a parameter. Its states are in the operator's registration (OpDef::state).
struct UpdateRule {
  std::string op_type;
  std::vector<v1::OpAttr> attrs;
  double learning_rate = 0;
  std::vector<NormInput> norms = {};
  // Path of the setting that restricts the rule to distributed tables; empty: for all parameters.
  std::string only_tables = "";
};

// Checks the settings and makes the rule. Errors through Setting::Error.
using OptimizerRule = std::function<absl::StatusOr<UpdateRule>(const google::protobuf::Message&, const Setting&)>;
KindRegistry<OptimizerRule>& OptimizerRegistry();

// Makes the rule for `optimizer`, a v1::Optimizer and its path. InvalidArgument if no kind is set, if it is not
// registered, or from the rule.
absl::StatusOr<UpdateRule> MakeUpdateRule(const Setting& optimizer);

// Checks, for rules, a value that is used as a 32-bit float: it must be zero, or finite and normal as one.
absl::Status CheckFloat(const Setting& at, std::string_view field, double value);
// Check likewise that the value is above zero, or not below zero.
absl::Status CheckPositive(const Setting& at, std::string_view field, double value);
absl::Status CheckNotNegative(const Setting& at, std::string_view field, double value);
// Checks that the value is in [0, 1), also as a 32-bit float.
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
// Use at namespace scope. `name`: the member of v1::Optimizer.kind.
#define REGISTER_OPTIMIZER(name, Message, ...) \
  static const ::weir::OptimizerRegistrar<Message> weir_optimizer_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_OPTIMIZER(name, Message, ...)                                                        \
  static const ::weir::OptimizerRegistrar<Message> weir_optimizer_##name(Message::descriptor()->full_name(), \
                                                                         __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_OPTIMIZERS_OPTIMIZER_H_
