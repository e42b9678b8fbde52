#include "framework/runtime/block_variables.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

absl::StatusOr<Variable*> BlockVariables::Locate(int lane, const std::string& name) {
  const v1::VarDesc* desc = block_->Describe(name);
  if (desc == nullptr) return absl::NotFoundError(absl::StrCat("variable '", name, "' is not declared"));
  const VariableOwner owner = block_->OwnerOf(name);
  if (owner == VariableOwner::kPersistable) return scope_->FindOrCreate(name);
  VarMap& vars = owner == VariableOwner::kStep ? of_step_ : of_lanes_[static_cast<size_t>(lane)];
  const auto [it, fresh] = vars.try_emplace(std::string(block_->Storage(name)));
  if (fresh && desc->kind() == v1::SELECTED_ROWS) it->second = SelectedRows();
  if (fresh && desc->kind() == v1::IDS) it->second = IdBatch();
  return &it->second;
}

Variable* BlockVariables::Find(int lane, std::string_view name) {
  CHECK(lane >= 0 && lane < lanes()) << lane;
  const VariableOwner owner = block_->OwnerOf(name);
  if (owner == VariableOwner::kPersistable) return scope_->Find(name);
  VarMap& vars = owner == VariableOwner::kStep ? of_step_ : of_lanes_[static_cast<size_t>(lane)];
  const auto it = vars.find(block_->Storage(name));
  return it == vars.end() ? nullptr : &it->second;
}

absl::StatusOr<std::vector<KernelContext>> BlockVariables::ContextsOf(const BlockOp& op, const StepContext* step,
                                                                      const int64_t* batch) {
  std::vector<KernelContext> contexts(op.per_lane() ? of_lanes_.size() : 1);
  for (int lane = 0; lane < lanes(); ++lane) {
    const int first = op.per_lane() ? lane : 0;
    const auto locate = [this, lane](const std::string& name) { return Locate(lane, name); };
    KernelContext& context = contexts[static_cast<size_t>(first)];
    ASSIGN_OR_RETURN(std::vector<KernelContext::Slot> inputs,
                     FillSlots<KernelContext::Slot>(op.def->inputs, op.desc->inputs(), locate));
    ASSIGN_OR_RETURN(std::vector<KernelContext::Slot> outputs,
                     FillSlots<KernelContext::Slot>(op.def->outputs, op.desc->outputs(), locate));
    context.inputs.push_back(std::move(inputs));
    context.outputs.push_back(std::move(outputs));
    context.step = step;
    context.lane_batch = batch + first;
  }
  return contexts;
}

}  // namespace weir
