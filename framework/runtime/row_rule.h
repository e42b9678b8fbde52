// Row form of an optimizer, which updates rows of an embedding table. Rows are laid out as [width values | state].
//
// Created from the update op of a table's optimize block, so an edited program takes effect. Lazy: only rows of the
// step change; Adam counts updates per row. Registered from ops/<optimizer>.cc.
#ifndef WEIR_FRAMEWORK_RUNTIME_ROW_RULE_H_
#define WEIR_FRAMEWORK_RUNTIME_ROW_RULE_H_

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

class RowRule {
 public:
  virtual ~RowRule() = default;
  // Names and widths of the state behind the values, in order.
  struct State {
    std::string name;
    int width = 0;
  };
  virtual std::vector<State> states(int width) const = 0;
  // Writes the initial state of a new row.
  virtual void InitState(int width, float* state) const = 0;
  // Updates n rows. rows[i] points at [width values | state]; grads[i] at width floats holding the sum over samples;
  // the gradient is grads[i][j] / divisor. No row occurs twice. Thread-safe. The result for a row depends on that row
  // alone.
  virtual void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
                      const float* const* grads) const = 0;
  // Updates parts of longer rows: rows[i] points at `width` values, whose state begins `state_at` floats after rows[i].
  // Equals Update if state_at == width; the default implementation copies each part into a contiguous row.
  virtual void UpdatePart(int width, int64_t state_at, float learning_rate, float divisor, int64_t n,
                          float* const* rows, const float* const* grads) const;
  // Updates the rows of these ids, for rules that depend on ids (framework/runtime/table_update.h). Callers that have
  // ids must call this instead of Update.
  virtual void UpdateIds(const int64_t* ids, int width, float learning_rate, float divisor, int64_t n,
                         float* const* rows, const float* const* grads) const {
    (void)ids;
    Update(width, learning_rate, divisor, n, rows, grads);
  }
  // Returns true if Update leaves rows with a gradient that is not finite unchanged; skipped_rows() counts them.
  virtual bool skips_rows() const { return false; }
  virtual int64_t skipped_rows() const { return 0; }

  int state_width(int width) const {
    int sum = 0;
    for (const State& s : states(width)) sum += s.width;
    return sum;
  }
};

using RowRuleFactory = std::function<absl::StatusOr<std::unique_ptr<RowRule>>(const AttrReader&)>;

class RowRuleRegistry {
 public:
  static RowRuleRegistry& Global();
  void Register(std::string_view op_type, RowRuleFactory factory);
  // NotFound lists the optimizers that have a row form.
  absl::StatusOr<std::unique_ptr<RowRule>> Make(const v1::OpDesc& update_op) const;

 private:
  std::vector<std::pair<std::string, RowRuleFactory>> rules_;
};

struct RowRuleRegistrar {
  RowRuleRegistrar(std::string_view op_type, RowRuleFactory factory) {
    RowRuleRegistry::Global().Register(op_type, std::move(factory));
  }
};
#define REGISTER_ROW_RULE(name, factory) \
  static const ::weir::RowRuleRegistrar weir_row_rule_registrar_##name(#name, factory)

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROW_RULE_H_
