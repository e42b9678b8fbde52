// Creates an Executor (framework/runtime/executor.h) that runs lane operators on a device, once for all lanes.
//
// A variable has a value on the host and one on the device, and the executor tracks which is newer; copies in both
// directions use queues of their own (framework/tensor/device_transfers.h). Host operators (those that communicate with
// servers, and those named in cpu_ops) run by their CPU kernels: their inputs are copied to the host first, and a gate
// op waits for them on another thread while the device continues. Find returns values on the host: fill them before a
// run, and read those named in `fetch` after it.
//
// Lanes, steps and gates of the program have the same meaning as on the CPU. Products of matrices are computed lane by
// lane (strided batches), and so are gradients of parameters. The order of additions differs from the CPU's: bits are
// equal in all runs on the same device with the same lanes in each process, but differ from those of the CPU.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_EXECUTOR_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_EXECUTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"
#include "framework/device/device_places.h"
#include "framework/device/device_scope.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/device_transfers.h"

namespace weir {

struct DeviceExecutorOptions {
  int block = 0;
  // Lanes of this process; at most kMostDeviceLanes.
  int lanes = 1;
  std::vector<std::string> fetch = {};
  // Types of operators that run on the CPU even if a device kernel exists; InvalidArgument for an unknown type.
  std::vector<std::string> cpu_ops = {};
  ProductPrecision precision = ProductPrecision::kFp32;
  // Captures work that repeats from run to run and launches it as graphs, on a device that supports it
  // (framework/tensor/device_replay.h).
  bool graphs = true;
  // Borrowed; both must outlive the executor. Executors of one DeviceScope share the transfers, too.
  DeviceTransfers* transfers = nullptr;
  DeviceScope* device_scope = nullptr;
};

// Creates the executor. NotFound names every operator type that neither the device nor the CPU fall-back can run.
absl::StatusOr<std::unique_ptr<Executor>> CreateDeviceExecutor(const v1::ProgramDesc& program, Scope* scope,
                                                               DeviceExecutorOptions options);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_EXECUTOR_H_
