// Determines which operators of a program run on the host in a trainer on a device, and the copies that each step makes
// because of it. Reads only the program; framework/device/device_executor.h runs it.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_PLACES_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_PLACES_H_

#include <string>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// Returns true if an operator runs by its CPU kernel: it is a host op (REGISTER_HOST_OP), or is named in `cpu_ops`
// (train.cpu_ops).
bool RunsOnHost(std::string_view type, const std::vector<std::string>& cpu_ops);

// Returns the types of the block's operators that have no device kernel, are not host ops and are not in
// `cpu_ops`; sorted.
std::vector<std::string> OpsWithoutDeviceKernel(const v1::ProgramDesc& program, int block,
                                                const std::vector<std::string>& cpu_ops);

// Copy between host and device that a step makes.
struct DeviceCopy {
  std::string variable;
  bool to_host = false;
  // The operator that needs it there: "send (op 12)".
  std::string for_op;
};
// Returns the copies in the order of the program, including those of fed variables and of parameters.
std::vector<DeviceCopy> DeviceCopies(const v1::ProgramDesc& program, int block,
                                     const std::vector<std::string>& cpu_ops);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_PLACES_H_
