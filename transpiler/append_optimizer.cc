#include "transpiler/append_optimizer.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "transpiler/optimizers/optimizer.h"
#include "transpiler/state_name.h"

namespace weir {
namespace {

v1::VarDesc ConstantVar(const std::string& name, absl::Span<const int64_t> dims, double value) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(v1::FLOAT32);
  var.mutable_dims()->Add(dims.begin(), dims.end());
  var.set_persistable(true);
  var.set_stop_gradient(true);
  var.mutable_initializer()->mutable_constant()->set_value(value);
  return var;
}

// An optimizer of the job, and the variable with its learning rate.
struct Updater {
  UpdateRule rule;
  const OpDef* def = nullptr;
  std::string learning_rate;
};

absl::StatusOr<Updater> MakeUpdater(const Setting& at, const std::string& learning_rate) {
  Updater updater;
  ASSIGN_OR_RETURN(updater.rule, MakeUpdateRule(at));
  const absl::StatusOr<const OpDef*> def = OpRegistry::Global().Get(updater.rule.op_type);
  if (!def.ok()) return at.Error("", absl::StrCat("makes the operator ", std::string(def.status().message())));
  if (!(*def)->is_optimizer) {
    return at.Error("", absl::StrCat("makes the operator ", updater.rule.op_type, ", which is no update"));
  }
  updater.def = *def;
  updater.learning_rate = learning_rate;
  return updater;
}

class Appender {
 public:
  Appender(const Job& job, v1::BlockDesc* block) : job_(job), block_(block) {}

  absl::Status Append(const v1::VarDesc& param) {
    const std::string grad_name = GradName(param.name());
    const v1::VarDesc* grad = FindVar(*block_, grad_name);
    if (grad == nullptr) {
      return job_.positions.Error("program", absl::StrCat("parameter '", param.name(), "' has no gradient '", grad_name, "'"));
    }
    const bool by_row = grad->kind() == v1::SELECTED_ROWS;
    ASSIGN_OR_RETURN(const Updater* updater, UpdaterOf(param.name()));
    v1::OpDesc op = MakeOp(updater->rule.op_type,
                           {{"Param", {param.name()}}, {"Grad", {grad_name}}, {"LearningRate", {updater->learning_rate}}},
                           {{"ParamOut", {param.name()}}}, updater->rule.attrs);
    if (param.kind() == v1::TABLE) {
      RETURN_IF_ERROR(CheckRowForm(op, param.name()));
    } else {
      RETURN_IF_ERROR(AddStates(*updater, param, by_row, &op));
    }
    const v1::ParamGrad pair = Pair(param.name(), grad_name);
    *block_->add_ops() = WithRole(std::move(op), v1::OPTIMIZE, &pair);
    return absl::OkStatus();
  }

 private:
  // Where a table stands in the job; -1 for other parameters.
  int TableIndex(const std::string& param) const {
    for (int i = 0; i < job_.config.table_size(); ++i) {
      if (job_.config.table(i).name() == param) return i;
    }
    return -1;
  }

  absl::StatusOr<const Updater*> UpdaterOf(const std::string& param) {
    const int table = TableIndex(param);
    const bool own = table >= 0 && job_.config.table(table).has_optimizer();
    const std::string learning_rate = own ? param + ".learning_rate" : "learning_rate";
    const auto found = updaters_.find(learning_rate);
    if (found != updaters_.end()) return &found->second;
    if (!own && !job_.config.has_optimizer()) {
      return job_.positions.Error("", absl::StrCat("the job has no optimizer for parameter '", param, "'"));
    }
    const Setting at = own ? Setting(&job_.config.table(table).optimizer(), absl::StrCat("table[", table, "].optimizer"),
                                     &job_.positions)
                           : Setting(&job_.config.optimizer(), "optimizer", &job_.positions);
    ASSIGN_OR_RETURN(Updater updater, MakeUpdater(at, learning_rate));
    RETURN_IF_ERROR(AddVar(ConstantVar(learning_rate, {1}, updater.rule.learning_rate)));
    return &updaters_.emplace(learning_rate, std::move(updater)).first->second;
  }

  absl::Status AddVar(const v1::VarDesc& var) {
    if (FindVar(*block_, var.name()) != nullptr) {
      return job_.positions.Error("", absl::StrCat("the optimizer needs a variable '", var.name(),
                                                   "', but a layer or the data has that name"));
    }
    *block_->add_vars() = var;
    return absl::OkStatus();
  }

  absl::Status AddStates(const Updater& updater, const v1::VarDesc& param, bool by_row, v1::OpDesc* op) {
    const AttrReader attrs(*op, *updater.def);
    std::vector<std::pair<std::string, std::string>> slots;
    for (const StateDef& state : updater.def->state) {
      const std::string name = StateName(param.name(), state.slot);
      std::vector<int64_t> dims = {1};
      if (state.like == StateDef::kParameter) dims.assign(param.dims().begin(), param.dims().end());
      if (state.like == StateDef::kCount && by_row) dims = {param.dims(0)};
      const double initial = state.initial_attr.empty() ? state.initial : attrs.Float(state.initial_attr);
      RETURN_IF_ERROR(AddVar(ConstantVar(name, dims, initial)));
      slots.emplace_back(state.slot, name);
    }
    for (const auto& [slot, name] : slots) {
      v1::OpSlot* input = op->add_inputs();
      input->set_name(slot);
      input->add_vars(name);
      v1::OpSlot* output = op->add_outputs();
      output->set_name(slot + "Out");
      output->add_vars(name);
    }
    return absl::OkStatus();
  }

  absl::Status CheckRowForm(const v1::OpDesc& op, const std::string& table) const {
    const absl::Status made = RowRuleRegistry::Global().Make(op).status();
    if (made.ok()) return absl::OkStatus();
    const int i = TableIndex(table);
    return job_.positions.Error(i < 0 ? "program" : absl::StrCat("table[", i, "]"),
                                absl::StrCat("table '", table, "': ", std::string(made.message())));
  }

  const Job& job_;
  v1::BlockDesc* const block_;
  std::map<std::string, Updater> updaters_;  // by learning rate variable; pointers into it stay
};

}  // namespace

absl::StatusOr<bool> AppendOptimizer(const Job& job, Programs* programs) {
  if (!UpdatedParameters(programs->main).empty()) return false;
  v1::BlockDesc* block = programs->main.mutable_blocks(0);
  std::map<std::string, v1::VarDesc> params;
  for (const v1::VarDesc& var : block->vars()) {
    if (var.is_parameter() && var.trainable()) params[var.name()] = var;
  }
  if (params.empty()) return job.positions.Error("model", "the model has no trainable parameter");
  Appender appender(job, block);
  for (const auto& [name, var] : params) RETURN_IF_ERROR(appender.Append(var));
  return true;
}

}  // namespace weir
