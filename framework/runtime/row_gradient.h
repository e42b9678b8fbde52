// What happens to gradients of table rows between their average and the update: the row form of clip and decay. And the rule
// of a whole optimize block of a table, made of its ops in order, so that the program stays what runs.
#ifndef WEIR_FRAMEWORK_RUNTIME_ROW_GRADIENT_H_
#define WEIR_FRAMEWORK_RUNTIME_ROW_GRADIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/row_rule.h"
#include "proto/program.pb.h"

namespace weir {

class RowGradientRule {
 public:
  virtual ~RowGradientRule() = default;
  // Changes the averaged gradients of n rows in place: grads [n, width]; rows[i] points at the row's values before the
  // update. The result for a row depends on that row alone. Thread-safe.
  virtual void Apply(int width, int64_t n, const float* const* rows, float* grads) const = 0;
};

using RowGradientFactory = std::function<absl::StatusOr<std::unique_ptr<RowGradientRule>>(const AttrReader&)>;

class RowGradientRegistry {
 public:
  static RowGradientRegistry& Global();
  void Register(std::string_view op_type, RowGradientFactory factory);
  // NotFound lists the operators that have a row form.
  absl::StatusOr<std::unique_ptr<RowGradientRule>> Make(const v1::OpDesc& op) const;

 private:
  std::vector<std::pair<std::string, RowGradientFactory>> rules_;
};

struct RowGradientRegistrar {
  RowGradientRegistrar(std::string_view op_type, RowGradientFactory factory) {
    RowGradientRegistry::Global().Register(op_type, std::move(factory));
  }
};
#define REGISTER_ROW_GRADIENT(name, factory) \
  static const ::weir::RowGradientRegistrar weir_row_gradient_registrar_##name(#name, factory)

// The update op `ops.back()` behind the others, which change the gradient in order. The division by RowRule::Update's divisor
// comes first. With the update alone it is the update's own rule. NotFound as the registries.
absl::StatusOr<std::unique_ptr<RowRule>> MakeRowRuleOf(absl::Span<const v1::OpDesc* const> ops);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROW_GRADIENT_H_
