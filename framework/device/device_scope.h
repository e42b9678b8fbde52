// Persistable variables on the device, the counterpart of a Scope on the host. Executors that share a Scope share its
// DeviceScope. Not thread-safe.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_SCOPE_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_SCOPE_H_

#include <map>
#include <memory>
#include <string>

#include "framework/device/device_kernel.h"
#include "framework/runtime/scope.h"

namespace weir {

class DeviceScope {
 public:
  explicit DeviceScope(Scope* scope) : scope_(scope) {}
  DeviceVariable* FindOrCreate(const v1::VarDesc& desc);
  // Records that other code (a startup program) has written values of the scope on the host. Requires: called after
  // each such write, before the next run on the device.
  void HostWasWritten();

 private:
  Scope* const scope_;
  std::map<std::string, std::unique_ptr<DeviceVariable>> vars_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_SCOPE_H_
