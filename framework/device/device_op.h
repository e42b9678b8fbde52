// An op of a block as the device executor runs it: by a device kernel once for all lanes, or by its CPU kernel on the
// host.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_OP_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_OP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"
#include "framework/device/device_variables.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/prepared_block.h"

namespace weir {

struct DeviceOp : BlockOp {
  // Kernels; exactly one is set.
  std::unique_ptr<OpDeviceKernel> device;
  std::unique_ptr<OpKernel> host;
  // Variables, also of ops on the host.
  DeviceKernelContext context;
  // Contexts of an op on the host: one per lane, or one that sees all lanes (BlockOp.per_lane).
  std::vector<KernelContext> host_contexts;
  // Variables by the place where the op needs them. `writes` has all outputs, `writes_on_host` those that a device
  // kernel writes on the host.
  std::vector<DeviceVariable*> reads, reads_on_host, writes, writes_on_host;
  // True if the op ran in the present run.
  bool ran = false;

  bool on_host() const { return host != nullptr; }
};

// Locates the op's variables and creates its kernel. `like`: a context without variables, with all other fields set.
// NotFound for a variable that is not declared, a slot that is not defined, or an op without a kernel.
absl::StatusOr<DeviceOp> MakeDeviceOp(const PreparedBlock& block, const BlockOp& op,
                                      const std::vector<std::string>& cpu_ops, const DeviceKernelContext& like,
                                      DeviceVariables* vars, BlockVariables* host_vars);

// Sets DeviceVariable.one_writer for the variables that the ops of a block write.
void MarkOneWriter(const std::vector<DeviceOp>& ops);
// Sets DeviceKernelContext.may_share: a value that is written where it is read belongs to one variable alone.
void AllowSharing(std::vector<DeviceOp>* ops);
// Returns the variables that ops read before an op has written them, except those that last: they are fed before a run.
std::vector<DeviceVariable*> FedVariables(const std::vector<DeviceOp>& ops);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_OP_H_
