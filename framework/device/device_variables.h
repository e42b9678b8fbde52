// Variables of a prepared block on the device, with their values on the host.
//
// Pointers to variables are valid as long as this object and the DeviceScope. Not thread-safe.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_VARIABLES_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_VARIABLES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"
#include "framework/device/device_scope.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/memory_use.h"
#include "framework/runtime/prepared_block.h"

namespace weir {

class DeviceVariables {
 public:
  // Borrows all. `host` has the values on the host of variables that are not persistable.
  DeviceVariables(const PreparedBlock* block, BlockVariables* host, DeviceScope* scope)
      : block_(block), host_(host), scope_(scope) {}
  DeviceVariables(const DeviceVariables&) = delete;
  DeviceVariables& operator=(const DeviceVariables&) = delete;

  // Finds a variable or creates it. NotFound if it is not declared.
  absl::StatusOr<DeviceVariable*> Locate(const std::string& name);
  // Returns a variable of lanes or of the step; nullptr if it was not located.
  DeviceVariable* Find(std::string_view name) const;

  // Bytes on the device.
  VariableBytes bytes() const;

 private:
  absl::StatusOr<DeviceVariable*> Create(const std::string& name, const v1::VarDesc& desc);

  const PreparedBlock* const block_;
  BlockVariables* const host_;
  DeviceScope* const scope_;
  // Keys are the names under which variables are kept (PreparedBlock::Storage).
  std::map<std::string, std::unique_ptr<DeviceVariable>, std::less<>> vars_;
  // Variables of the scope that the block uses.
  std::vector<DeviceVariable*> persistable_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_VARIABLES_H_
