// Where the operators of a program run in a trainer on a device, and what each step copies because of it. Reads the
// program alone; what runs it is framework/runtime/device_executor.h.
#ifndef WEIR_FRAMEWORK_RUNTIME_DEVICE_PLACES_H_
#define WEIR_FRAMEWORK_RUNTIME_DEVICE_PLACES_H_

#include <string>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// By its CPU kernel: an operator that is the host's by nature, or is named in `cpu_ops` (train.cpu_ops).
bool RunsOnHost(std::string_view type, const std::vector<std::string>& cpu_ops);

// Types of the block's operators that have no device kernel, are not the host's by nature and are not in `cpu_ops`;
// sorted.
std::vector<std::string> OpsWithoutDeviceKernel(const v1::ProgramDesc& program, int block,
                                                const std::vector<std::string>& cpu_ops);

// A copy that a step makes because of where its operators run.
struct DeviceCopy {
  std::string variable;
  bool to_host = false;
  // The operator that needs it there: "send (op 12)".
  std::string for_op;
};
// In the order of the program; what is fed and what parameters need included.
std::vector<DeviceCopy> DeviceCopies(const v1::ProgramDesc& program, int block,
                                     const std::vector<std::string>& cpu_ops);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_DEVICE_PLACES_H_
