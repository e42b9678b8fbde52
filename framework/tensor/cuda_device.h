// DeviceRuntime on CUDA, with graphs (framework/tensor/device_replay.h). Compiled everywhere; where Weir is built
// without the CUDA toolkit, opening a device is an error that says so.
#ifndef WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_
#define WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/tensor/device_replay.h"

namespace weir {

// FailedPrecondition when there is no toolkit in this build, no driver, one that is too old (both versions are named),
// no device, or one without the instructions that kernels are built for; InvalidArgument when there is no device `id`
// (names those that are there). Nothing of the device is used before all of that is known to be well.
absl::StatusOr<std::unique_ptr<ReplayingDevice>> OpenCudaDevice(int id);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_CUDA_DEVICE_H_
