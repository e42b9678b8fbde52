// Executor (framework/runtime/executor.h) whose lane operators run on a device, once for all lanes.
//
// A variable has a value on the host and one on the device, and the executor knows which is newer; copies go in and out
// in queues of their own (framework/tensor/device_transfers.h). Operators of the host (those that speak to servers, and
// those named in cpu_ops) run by their CPU kernels: what they read is brought to the host first, and a gate op's part
// waits on another thread while the device goes on. Everything that Find gives is on the host: fed before a run, and
// read after it as far as it was named in `fetch`.
//
// The program's lanes, steps and gates mean what they mean on the CPU. Products of matrices are taken lane by lane
// (strided batches), and gradients of parameters lane by lane, so sums have an order of their own: bits are those of
// every run on the same device with the same lanes in each process, not those of the CPU.
#ifndef WEIR_FRAMEWORK_RUNTIME_DEVICE_EXECUTOR_H_
#define WEIR_FRAMEWORK_RUNTIME_DEVICE_EXECUTOR_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/device_kernel.h"
#include "framework/runtime/device_places.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/device_transfers.h"

namespace weir {

// Persistable variables on the device: what Scope is on the host. Executors that share a Scope share one of these.
class DeviceScope {
 public:
  explicit DeviceScope(Scope* scope) : scope_(scope) {}
  DeviceVariable* FindOrCreate(const v1::VarDesc& desc);
  // Somebody else (a startup program) has written values of the scope on the host.
  void HostWasWritten();

 private:
  Scope* const scope_;
  std::map<std::string, std::unique_ptr<DeviceVariable>> vars_;
};

struct DeviceExecutorOptions {
  int block = 0;
  // Of this process; at most kMostDeviceLanes.
  int lanes = 1;
  std::vector<std::string> fetch = {};
  // Types of operators that run on the CPU though a kernel may exist; InvalidArgument for one that no program can have.
  std::vector<std::string> cpu_ops = {};
  ProductPrecision precision = ProductPrecision::kFp32;
  // What repeats from run to run is captured and launched as graphs, on a device that does so
  // (framework/tensor/device_replay.h).
  bool graphs = true;
  // Borrowed; both outlive the executor. Executors of one DeviceScope share the transfers, too.
  DeviceTransfers* transfers = nullptr;
  DeviceScope* device_scope = nullptr;
};

// NotFound names every operator type that neither the device nor the CPU fall-back can run.
absl::StatusOr<std::unique_ptr<Executor>> CreateDeviceExecutor(const v1::ProgramDesc& program, Scope* scope,
                                                               DeviceExecutorOptions options);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_DEVICE_EXECUTOR_H_
