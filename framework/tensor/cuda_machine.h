// CUDA devices of this machine, described without using one. Compiled in every build.
#ifndef WEIR_FRAMEWORK_TENSOR_CUDA_MACHINE_H_
#define WEIR_FRAMEWORK_TENSOR_CUDA_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

struct CudaMachine {
  // Versions, "12.4"; "" if unknown: no driver, a build without the CUDA toolkit.
  std::string runtime;
  std::string driver;
  struct Device {
    std::string name;        // "NVIDIA H200"
    int64_t memory = 0;      // bytes
    std::string capability;  // "9.0"
    std::string bus;         // "0000:3b:00.0"; unique on its machine
    std::vector<int> peers;  // devices whose memory this one reads and writes directly
  };
  // Devices that this process sees, by number.
  std::vector<Device> devices;
  // OK if there is a device, else the reason why there is none.
  absl::Status usable;
};
CudaMachine DescribeCudaMachine();

// Returns a text that is different for every device of every machine: id of the machine's boot and address on the bus.
// Internal: the device has no address.
absl::StatusOr<std::string> CudaDeviceIdentity(int id);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_CUDA_MACHINE_H_
