#include "framework/device/device_places.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "framework/device/device_kernel.h"
#include "glog/logging.h"

namespace weir {

bool RunsOnHost(std::string_view type, const std::vector<std::string>& cpu_ops) {
  if (std::find(cpu_ops.begin(), cpu_ops.end(), type) != cpu_ops.end()) return true;
  if (!KernelRegistry::Global().IsHostOp(type)) return false;
  CHECK(DeviceKernelRegistry::Global().Find(type) == nullptr) << type << " is a host op and has a device kernel";
  return true;
}

std::vector<std::string> OpsWithoutDeviceKernel(const v1::ProgramDesc& program, int block,
                                                const std::vector<std::string>& cpu_ops) {
  std::set<std::string> missing;
  for (const v1::OpDesc& op : program.blocks(block).ops()) {
    if (!RunsOnHost(op.type(), cpu_ops) && DeviceKernelRegistry::Global().Find(op.type()) == nullptr)
      missing.insert(op.type());
  }
  return {missing.begin(), missing.end()};
}

std::vector<DeviceCopy> DeviceCopies(const v1::ProgramDesc& program, int block,
                                     const std::vector<std::string>& cpu_ops) {
  std::vector<DeviceCopy> copies;
  // Place of the newest value of each variable. A variable that no op has written (fed, or received) is on the host.
  std::map<std::string, bool> on_host, on_device;
  const auto held = [](std::map<std::string, bool>& where, const std::string& var, bool otherwise) -> bool& {
    return where.try_emplace(var, otherwise).first->second;
  };
  const auto on_host_slot = [](const DeviceKernelRegistry::Entry* entry, const std::string& slot) {
    return entry != nullptr &&
           std::find(entry->host_slots.begin(), entry->host_slots.end(), slot) != entry->host_slots.end();
  };
  std::set<std::string> lasting, known, fed;
  for (const v1::VarDesc& var : program.blocks(block).vars()) {
    if (var.persistable()) lasting.insert(var.name());
  }
  for (const v1::OpDesc& op : program.blocks(block).ops()) {
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& var : slot.vars()) {
        if (known.insert(var).second && !lasting.contains(var)) fed.insert(var);
      }
    }
    for (const v1::OpSlot& slot : op.outputs()) known.insert(slot.vars().begin(), slot.vars().end());
  }
  // The second step is what every later one is like.
  for (int step = 0; step < 2; ++step) {
    copies.clear();
    for (const std::string& var : fed) {
      on_host[var] = true;
      on_device[var] = false;
    }
    int index = 0;
    for (const v1::OpDesc& op : program.blocks(block).ops()) {
      const bool host = RunsOnHost(op.type(), cpu_ops);
      const DeviceKernelRegistry::Entry* entry = DeviceKernelRegistry::Global().Find(op.type());
      const std::string name = absl::StrCat(op.type(), " (op ", index++, ")");
      for (const v1::OpSlot& slot : op.inputs()) {
        const bool on_host_here = host || on_host_slot(entry, slot.name());
        for (const std::string& var : slot.vars()) {
          bool& there = on_host_here ? held(on_host, var, true) : held(on_device, var, false);
          if (!there) copies.push_back({.variable = var, .to_host = on_host_here, .for_op = name});
          there = true;
        }
      }
      for (const v1::OpSlot& slot : op.outputs()) {
        const bool there = host || on_host_slot(entry, slot.name());
        for (const std::string& var : slot.vars()) {
          held(on_host, var, true) = there;
          held(on_device, var, false) = !there;
        }
      }
    }
  }
  return copies;
}

}  // namespace weir
