// Opens CUDA devices as DeviceRuntime with graphs (framework/tensor/device_replay.h). Compiled in every build; without
// the CUDA toolkit opening a device returns an error that says so.
#ifndef WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_
#define WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/tensor/device_replay.h"

namespace weir {

// Opens device `id`. FailedPrecondition if this build has no toolkit, if there is no driver, one that is too old (names
// both versions), no device, or a device without the instructions that kernels are built for; InvalidArgument if there
// is no device `id` (names the existing ones). Does not use the device before all these checks have passed.
absl::StatusOr<std::unique_ptr<ReplayingDevice>> OpenCudaDevice(int id);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_
