#include "framework/runtime/row_gradient.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "glog/logging.h"

namespace weir {
namespace {

class ChainedRowRule : public RowRule {
 public:
  ChainedRowRule(std::vector<std::unique_ptr<RowGradientRule>> before, std::unique_ptr<RowRule> update)
      : before_(std::move(before)), update_(std::move(update)) {}

  std::vector<State> states(int width) const override { return update_->states(width); }
  void InitState(int width, float* state) const override { update_->InitState(width, state); }

  void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    // Kept between calls so that a step allocates nothing; no rule below comes back here.
    static thread_local std::vector<float> means;
    static thread_local std::vector<const float*> pointers;
    means.resize(static_cast<size_t>(n * width));
    pointers.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      float* const mean = means.data() + i * width;
      for (int j = 0; j < width; ++j) mean[j] = grads[i][j] / divisor;
      pointers[static_cast<size_t>(i)] = mean;
    }
    for (const auto& rule : before_) rule->Apply(width, n, rows, means.data());
    update_->Update(width, learning_rate, 1, n, rows, pointers.data());
  }

 private:
  const std::vector<std::unique_ptr<RowGradientRule>> before_;
  const std::unique_ptr<RowRule> update_;
};

}  // namespace

RowGradientRegistry& RowGradientRegistry::Global() {
  static RowGradientRegistry* const registry = new RowGradientRegistry();
  return *registry;
}

void RowGradientRegistry::Register(std::string_view op_type, RowGradientFactory factory) {
  auto at = std::lower_bound(rules_.begin(), rules_.end(), op_type,
                             [](const auto& entry, std::string_view type) { return entry.first < type; });
  CHECK(at == rules_.end() || at->first != op_type) << "row form of " << op_type << " is registered twice";
  rules_.insert(at, {std::string(op_type), std::move(factory)});
}

absl::StatusOr<std::unique_ptr<RowGradientRule>> RowGradientRegistry::Make(const v1::OpDesc& op) const {
  for (const auto& [type, factory] : rules_) {
    if (type != op.type()) continue;
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(type));
    return factory(AttrReader(op, *def));
  }
  std::vector<std::string> known;
  for (const auto& rule : rules_) known.push_back(rule.first);
  return absl::NotFoundError(absl::StrCat("operator '", op.type(),
                                          "' cannot work on gradient rows of a table; operators that can: ",
                                          absl::StrJoin(known, ", ")));
}

absl::StatusOr<std::unique_ptr<RowRule>> MakeRowRuleOf(absl::Span<const v1::OpDesc* const> ops) {
  CHECK(!ops.empty());
  ASSIGN_OR_RETURN(std::unique_ptr<RowRule> update, RowRuleRegistry::Global().Make(*ops.back()));
  if (ops.size() == 1) return update;
  std::vector<std::unique_ptr<RowGradientRule>> before;
  for (const v1::OpDesc* op : ops.first(ops.size() - 1)) {
    ASSIGN_OR_RETURN(std::unique_ptr<RowGradientRule> rule, RowGradientRegistry::Global().Make(*op));
    before.push_back(std::move(rule));
  }
  return std::unique_ptr<RowRule>(new ChainedRowRule(std::move(before), std::move(update)));
}

}  // namespace weir
