#include "framework/runtime/row_rule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

void RowRule::UpdatePart(int width, int64_t state_at, float learning_rate, float divisor, int64_t n, float* const* rows,
                         const float* const* grads) const {
  const int state = state_width(width);
  std::vector<float> row(static_cast<size_t>(width + state));
  float* const whole = row.data();
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(rows[i], width, whole);
    std::copy_n(rows[i] + state_at, state, whole + width);
    Update(width, learning_rate, divisor, 1, &whole, grads + i);
    std::copy_n(whole, width, rows[i]);
    std::copy_n(whole + width, state, rows[i] + state_at);
  }
}

RowRuleRegistry& RowRuleRegistry::Global() {
  static RowRuleRegistry* const registry = new RowRuleRegistry();
  return *registry;
}

void RowRuleRegistry::Register(std::string_view op_type, RowRuleFactory factory) {
  auto at = std::lower_bound(rules_.begin(), rules_.end(), op_type,
                             [](const auto& entry, std::string_view type) { return entry.first < type; });
  CHECK(at == rules_.end() || at->first != op_type) << "row rule of " << op_type << " is registered twice";
  rules_.insert(at, {std::string(op_type), std::move(factory)});
}

absl::StatusOr<std::unique_ptr<RowRule>> RowRuleRegistry::Make(const v1::OpDesc& update_op) const {
  for (const auto& [type, factory] : rules_) {
    if (type != update_op.type()) continue;
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(type));
    return factory(AttrReader(update_op, *def));
  }
  std::vector<std::string> known;
  for (const auto& rule : rules_) known.push_back(rule.first);
  return absl::NotFoundError(
      absl::StrCat("operator '", update_op.type(),
                   "' cannot update rows of a table; optimizers that can: ", absl::StrJoin(known, ", ")));
}

}  // namespace weir
