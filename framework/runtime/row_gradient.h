// Row forms of operators around the update of table rows: clip and decay, which change gradients before it,
// drop_bad_rows, which excludes rows, and bound, which changes values after it.
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
#include "framework/graph/op_registry.h"
#include "proto/program.pb.h"

namespace weir {

class RowGradientRule {
 public:
  virtual ~RowGradientRule() = default;
  // Changes the averaged gradients of n rows in place: grads [n, width]; rows[i] points at the row's values before the
  // update. The result for a row depends on that row alone. Thread-safe.
  virtual void Apply(int width, int64_t n, const float* const* rows, float* grads) const = 0;
};

class RowFilterRule {
 public:
  virtual ~RowFilterRule() = default;
  // Returns false if the row with this gradient [width], summed or averaged, must stay unchanged. Thread-safe.
  virtual bool Keep(int width, const float* grad) const = 0;
};

class RowValueRule {
 public:
  virtual ~RowValueRule() = default;
  // Changes the values of n updated rows in place: `width` floats at rows[i]. Each value by itself. Thread-safe.
  virtual void Apply(int width, int64_t n, float* const* rows) const = 0;
};

// Registry of row forms of one kind, by operator.
template <typename Rule>
class RowOpRegistry {
 public:
  using Factory = std::function<absl::StatusOr<std::unique_ptr<Rule>>(const AttrReader&)>;
  static RowOpRegistry& Global();
  void Register(std::string_view op_type, Factory factory);
  bool Has(std::string_view op_type) const;
  // NotFound lists the operators that have this form.
  absl::StatusOr<std::unique_ptr<Rule>> Make(const v1::OpDesc& op) const;

 private:
  std::vector<std::pair<std::string, Factory>> rules_;
};
using RowGradientRegistry = RowOpRegistry<RowGradientRule>;
using RowFilterRegistry = RowOpRegistry<RowFilterRule>;
using RowValueRegistry = RowOpRegistry<RowValueRule>;

template <typename Rule>
struct RowOpRegistrar {
  RowOpRegistrar(std::string_view op_type, typename RowOpRegistry<Rule>::Factory factory) {
    RowOpRegistry<Rule>::Global().Register(op_type, std::move(factory));
  }
};
#define REGISTER_ROW_GRADIENT(name, factory) \
  static const ::weir::RowOpRegistrar<::weir::RowGradientRule> weir_row_gradient_registrar_##name(#name, factory)
#define REGISTER_ROW_FILTER(name, factory) \
  static const ::weir::RowOpRegistrar<::weir::RowFilterRule> weir_row_filter_registrar_##name(#name, factory)
#define REGISTER_ROW_VALUES(name, factory) \
  static const ::weir::RowOpRegistrar<::weir::RowValueRule> weir_row_values_registrar_##name(#name, factory)

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROW_GRADIENT_H_
