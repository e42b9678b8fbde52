#include "framework/runtime/row_gradient.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

template <typename Rule>
RowOpRegistry<Rule>& RowOpRegistry<Rule>::Global() {
  static RowOpRegistry* const registry = new RowOpRegistry();
  return *registry;
}

template <typename Rule>
void RowOpRegistry<Rule>::Register(std::string_view op_type, Factory factory) {
  auto at = std::lower_bound(rules_.begin(), rules_.end(), op_type,
                             [](const auto& entry, std::string_view type) { return entry.first < type; });
  CHECK(at == rules_.end() || at->first != op_type) << "row form of " << op_type << " is registered twice";
  rules_.insert(at, {std::string(op_type), std::move(factory)});
}

template <typename Rule>
bool RowOpRegistry<Rule>::Has(std::string_view op_type) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const auto& rule) { return rule.first == op_type; });
}

template <typename Rule>
absl::StatusOr<std::unique_ptr<Rule>> RowOpRegistry<Rule>::Make(const v1::OpDesc& op) const {
  for (const auto& [type, factory] : rules_) {
    if (type != op.type()) continue;
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(type));
    return factory(AttrReader(op, *def));
  }
  std::vector<std::string> known;
  for (const auto& rule : rules_) known.push_back(rule.first);
  return absl::NotFoundError(
      absl::StrCat("operator '", op.type(),
                   "' cannot work on gradient rows of a table; operators that can: ", absl::StrJoin(known, ", ")));
}

template class RowOpRegistry<RowGradientRule>;
template class RowOpRegistry<RowFilterRule>;
template class RowOpRegistry<RowValueRule>;

}  // namespace weir
