#include "framework/device/device_variables.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr std::string_view kLaneVariables = "variables of lanes", kStepVariables = "rows of the step";

}  // namespace

absl::StatusOr<DeviceVariable*> DeviceVariables::Locate(const std::string& name) {
  const v1::VarDesc* desc = block_->Describe(name);
  if (desc == nullptr) return absl::NotFoundError(absl::StrCat("variable '", name, "' is not declared"));
  if (desc->persistable()) {
    DeviceVariable* const var = scope_->FindOrCreate(*desc);
    if (std::find(persistable_.begin(), persistable_.end(), var) == persistable_.end()) persistable_.push_back(var);
    return var;
  }
  if (DeviceVariable* const var = Find(name); var != nullptr) return var;
  return Create(name, *desc);
}

absl::StatusOr<DeviceVariable*> DeviceVariables::Create(const std::string& name, const v1::VarDesc& desc) {
  const std::string storage(block_->Storage(name));
  const bool shared = block_->OwnerOf(name) == VariableOwner::kStep;
  auto var = std::make_unique<DeviceVariable>(DeviceVariable{.name = storage,
                                                             .kind = desc.kind(),
                                                             .owner = shared ? kStepVariables : kLaneVariables,
                                                             .shared = shared,
                                                             .width = desc.dims_size() == 2 ? desc.dims(1) : 0});
  for (int lane = 0; lane < (shared ? 1 : host_->lanes()); ++lane) {
    ASSIGN_OR_RETURN(Variable* const value, host_->Locate(lane, name));
    var->host.push_back(value);
  }
  return (vars_[storage] = std::move(var)).get();
}

DeviceVariable* DeviceVariables::Find(std::string_view name) const {
  const auto it = vars_.find(block_->Storage(name));
  return it == vars_.end() ? nullptr : it->second.get();
}

VariableBytes DeviceVariables::bytes() const {
  VariableBytes sum;
  for (const auto& [name, var] : vars_) {
    sum.Add(var->shared ? VariableOwner::kStep : VariableOwner::kLane, static_cast<int64_t>(var->device.bytes()));
  }
  for (const DeviceVariable* var : persistable_) {
    sum.Add(VariableOwner::kPersistable, static_cast<int64_t>(var->device.bytes()));
  }
  return sum;
}

}  // namespace weir
