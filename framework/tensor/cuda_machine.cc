#include "framework/tensor/cuda_machine.h"

#include "absl/strings/str_cat.h"

#if WEIR_HAVE_CUDA

#include <cuda_runtime_api.h>

#include <cctype>
#include <fstream>

#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Returns "12.4" for 12040.
std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status Failed(const char* what, cudaError_t error) {
  (void)cudaGetLastError();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

absl::StatusOr<std::string> BusAddress(int id) {
  char text[32] = "";
  const cudaError_t error = cudaDeviceGetPCIBusId(text, sizeof(text), id);
  if (error != cudaSuccess) {
    return absl::InternalError(
        absl::StrCat("CUDA device ", id, " has no address on the bus: ", Failed("asking for it", error).message()));
  }
  std::string address = text;
  for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return address;
}

}  // namespace

CudaMachine DescribeCudaMachine() {
  CudaMachine machine;
  int runtime = 0, driver = 0, devices = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) machine.runtime = Version(runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    machine.usable = absl::FailedPreconditionError("this machine has no NVIDIA driver");
    return machine;
  }
  machine.driver = Version(driver);
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    machine.usable = Failed("no CUDA device", error);
    return machine;
  }
  if (devices == 0) {
    machine.usable = absl::FailedPreconditionError("the driver sees no device (CUDA_VISIBLE_DEVICES hides some)");
  }
  for (int d = 0; d < devices; ++d) {
    cudaDeviceProp properties;
    CudaMachine::Device device;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, d); error == cudaSuccess) {
      device.name = properties.name;
      device.memory = static_cast<int64_t>(properties.totalGlobalMem);
      device.capability = absl::StrCat(properties.major, ".", properties.minor);
    } else {
      device.name = absl::StrCat("unknown: ", Failed("asking for its properties", error).message());
    }
    if (absl::StatusOr<std::string> bus = BusAddress(d); bus.ok()) device.bus = *std::move(bus);
    for (int other = 0; other < devices; ++other) {
      int can = 0;
      if (other != d && cudaDeviceCanAccessPeer(&can, d, other) == cudaSuccess && can == 1) {
        device.peers.push_back(other);
      }
    }
    machine.devices.push_back(std::move(device));
  }
  return machine;
}

absl::StatusOr<std::string> CudaDeviceIdentity(int id) {
  ASSIGN_OR_RETURN(const std::string bus, BusAddress(id));
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  if (boot.empty())
    return absl::InternalError("/proc/sys/kernel/random/boot_id, which tells machines apart, cannot be read");
  return absl::StrCat(boot, "/", bus);
}

}  // namespace weir

#else

namespace weir {

CudaMachine DescribeCudaMachine() {
  CudaMachine machine;
  machine.usable = absl::FailedPreconditionError("this program was built without the CUDA toolkit");
  return machine;
}

absl::StatusOr<std::string> CudaDeviceIdentity(int id) {
  return absl::InternalError(absl::StrCat("CUDA device ", id, " in a build without the CUDA toolkit"));
}

}  // namespace weir

#endif  // WEIR_HAVE_CUDA
