// How an operator runs on a device: once for all lanes, by putting kernels into the compute queue. Beside
// framework/runtime/kernel.h, which is how it runs on the CPU.
#ifndef WEIR_FRAMEWORK_RUNTIME_DEVICE_KERNEL_H_
#define WEIR_FRAMEWORK_RUNTIME_DEVICE_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/product_precision.h"
#include "framework/tensor/device_tensor.h"
#include "framework/tensor/device_transfers.h"

namespace weir {

class RoundedFactors;

// Most lanes of one process: their places go to kernels as arguments.
inline constexpr int kMostDeviceLanes = 64;

// A variable, here and on the device. Where the newest value is, is the executor's to know; kernels fill `device`, and
// of selected rows the ids in `host`.
struct DeviceVariable {
  std::string name;
  v1::VarKind kind = v1::DENSE;
  // Whose memory it is, for messages: "variables of lanes".
  std::string_view owner;
  // One value for all lanes, or one for each.
  bool shared = false;
  // By lane; one when shared.
  std::vector<Variable*> host;
  // Of selected rows, as declared.
  int64_t width = 0;
  // Dense values; of selected rows the values.
  DeviceTensor device;
  // Of what is brought: data, rows. What lasts stays where it is.
  DeviceLanding landing;
  bool lasts = false;
  // Written by one op of the host and no other, and not in place: where its memory is pinned, that op has taken it anew
  // (StepContext.row_memory), and it is copied from where it lies.
  bool one_writer = false;
  bool on_host = true;
  bool on_device = false;
  // A copy to the host that has not been waited for.
  std::shared_ptr<Arrival> arrival;
  // Compute must wait for copies to the host before it writes here.
  bool leaving = false;
};

class DeviceKernelContext {
 public:
  struct Slot {
    std::vector<DeviceVariable*> vars;
  };
  std::vector<Slot> inputs;
  std::vector<Slot> outputs;
  const StepContext* step = nullptr;
  // Lanes of this process, and examples in each.
  int lanes = 1;
  const int64_t* lane_batch = nullptr;
  DeviceTransfers* transfers = nullptr;
  // An output may lie where an input does: no operator of the program writes to either where it reads it.
  bool may_share = false;
  ProductPrecision precision = ProductPrecision::kFp32;
  // The executor's; with a precision of 16 bits.
  RoundedFactors* rounded = nullptr;

  DeviceRuntime& runtime() const { return *transfers->runtime(); }
  DeviceMemory* memory() const { return transfers->memory(); }
  int input_count(int slot) const { return static_cast<int>(inputs[static_cast<size_t>(slot)].vars.size()); }
  int output_count(int slot) const { return static_cast<int>(outputs[static_cast<size_t>(slot)].vars.size()); }
  bool has_input(int slot) const { return input_count(slot) > 0; }
  bool has_output(int slot) const { return output_count(slot) > 0; }
  DeviceVariable& input_var(int slot, int i = 0) const {
    return *inputs[static_cast<size_t>(slot)].vars[static_cast<size_t>(i)];
  }
  DeviceVariable& output_var(int slot, int i = 0) const {
    return *outputs[static_cast<size_t>(slot)].vars[static_cast<size_t>(i)];
  }
  const DeviceTensor& input(int slot, int i = 0) const { return input_var(slot, i).device; }
  DeviceTensor& output(int slot, int i = 0) const { return output_var(slot, i).device; }
  // Of a slot that the kernel reads on the host.
  template <typename T>
  const T& host_input(int lane, int slot, int i = 0) const {
    const DeviceVariable& var = input_var(slot, i);
    return std::get<T>(*var.host[var.shared ? 0 : static_cast<size_t>(lane)]);
  }

  // An output of the dims of `like`; of the same lanes.
  absl::Status ResizeLike(int slot, const DeviceTensor& like, int i = 0) const {
    const std::vector<int64_t> rows = like.lane_rows();
    const Shape row_dims(like.row_dims().begin(), like.row_dims().end());
    return Resize(slot, like.rank(), rows, row_dims, i, like.dtype());
  }
  absl::Status Resize(int slot, int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims, int i = 0,
                      DType dtype = v1::FLOAT32) const {
    DeviceVariable& var = output_var(slot, i);
    return var.device.Resize(memory(), var.owner, dtype, rank, rows, row_dims);
  }
};

class OpDeviceKernel {
 public:
  virtual ~OpDeviceKernel() = default;
  // Puts work into the compute queue, copies into the queues for them; waits for nothing.
  virtual absl::Status Run(DeviceKernelContext& ctx) = 0;
  // Gate ops: what is left to be done on the host when what Run sent there has come. Runs on another thread while lanes
  // go on; may wait for arrivals.
  virtual absl::Status Finish(DeviceKernelContext& ctx) {
    (void)ctx;
    return absl::OkStatus();
  }
};

// Device memory that a kernel has for itself, from step to step.
class DeviceArray {
 public:
  // `owner`: for DeviceMemory; lives as long.
  explicit DeviceArray(std::string_view owner = "kernels") : owner_(owner) {}
  // At least so many bytes; what was there is lost.
  absl::Status Reserve(DeviceMemory* memory, size_t bytes) {
    if (block_ != nullptr && block_->size() >= bytes) return absl::OkStatus();
    block_.reset();
    auto block = memory->Allocate(std::max<size_t>(bytes, 4), owner_);
    if (!block.ok()) return block.status();
    block_ = *std::move(block);
    return absl::OkStatus();
  }
  template <typename T>
  T* data() const {
    return block_ == nullptr ? nullptr : static_cast<T*>(block_->data());
  }

 private:
  std::string_view owner_;
  std::shared_ptr<DeviceBlock> block_;
};

using DeviceKernelFactory = std::function<absl::StatusOr<std::unique_ptr<OpDeviceKernel>>(const KernelInit&)>;

class DeviceKernelRegistry {
 public:
  struct Entry {
    // Empty: the op is the host's by its nature (it speaks to servers, it looks at ids); its CPU kernel runs.
    DeviceKernelFactory factory;
    // Inputs that the kernel reads, and outputs that it writes, on the host.
    std::vector<std::string> host_slots;
  };
  static DeviceKernelRegistry& Global();
  // CHECK-fails on a type registered twice.
  void Register(std::string_view type, Entry entry);
  // nullptr when there is none.
  const Entry* Find(std::string_view type) const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

struct DeviceKernelRegistrar {
  DeviceKernelRegistrar(std::string_view type, DeviceKernelRegistry::Entry entry) {
    DeviceKernelRegistry::Global().Register(type, std::move(entry));
  }
};
#define REGISTER_DEVICE_KERNEL(name, ...) \
  static const ::weir::DeviceKernelRegistrar weir_device_kernel_registrar_##name(#name, {__VA_ARGS__})
// At namespace scope:  REGISTER_DEVICE_KERNEL(relu, MakeDeviceKernel<ReluKernel>);
#define REGISTER_HOST_OP(name) static const ::weir::DeviceKernelRegistrar weir_device_kernel_registrar_##name(#name, {})

// For kernels with a constructor from KernelInit that cannot fail.
template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeDeviceKernel(const KernelInit& init) {
  return std::unique_ptr<OpDeviceKernel>(new Kernel(init));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_DEVICE_KERNEL_H_
