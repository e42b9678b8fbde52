#include "framework/device/device_kernel.h"

#include "glog/logging.h"

namespace weir {

DeviceKernelRegistry& DeviceKernelRegistry::Global() {
  static DeviceKernelRegistry* const registry = new DeviceKernelRegistry();
  return *registry;
}

void DeviceKernelRegistry::Register(std::string_view type, Entry entry) {
  CHECK(entries_.emplace(type, std::move(entry)).second) << "device kernel of " << type << " is registered twice";
}

const DeviceKernelRegistry::Entry* DeviceKernelRegistry::Find(std::string_view type) const {
  const auto it = entries_.find(type);
  return it == entries_.end() ? nullptr : &it->second;
}

}  // namespace weir
