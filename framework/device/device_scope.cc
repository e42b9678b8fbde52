#include "framework/device/device_scope.h"

#include <string_view>

namespace weir {
namespace {

constexpr std::string_view kParameters = "parameters";

}  // namespace

DeviceVariable* DeviceScope::FindOrCreate(const v1::VarDesc& desc) {
  std::unique_ptr<DeviceVariable>& var = vars_[desc.name()];
  if (var == nullptr) {
    var = std::make_unique<DeviceVariable>(DeviceVariable{.name = desc.name(),
                                                          .kind = desc.kind(),
                                                          .owner = kParameters,
                                                          .shared = true,
                                                          .host = {scope_->FindOrCreate(desc.name())},
                                                          .width = desc.dims_size() == 2 ? desc.dims(1) : 0,
                                                          .lasts = true});
  }
  return var.get();
}

void DeviceScope::HostWasWritten() {
  for (auto& [name, var] : vars_) {
    var->arrival.reset();
    var->on_host = true;
    var->on_device = false;
  }
}

}  // namespace weir
