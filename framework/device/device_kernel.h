// Registry of device kernels of operators. A device kernel runs once for all lanes and submits work to the compute
// queue. Kernels register themselves from ops/device; framework/runtime/kernel.h has the kernels of the CPU, and host
// ops, which have no device kernel.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_KERNEL_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_KERNEL_H_

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

// Most lanes of one process: their offsets are passed to kernels as arguments.
inline constexpr int kMostDeviceLanes = 64;

// Variable on the host and on the device. The executor tracks which value is newer; kernels fill `device`, and for
// selected rows the ids in `host`.
struct DeviceVariable {
  std::string name;
  v1::VarKind kind = v1::DENSE;
  // Owner of the memory, for messages: "variables of lanes".
  std::string_view owner;
  // True for one value for all lanes; false for one value per lane.
  bool shared = false;
  // Host values by lane; one entry if shared.
  std::vector<Variable*> host;
  // Declared row width of selected rows.
  int64_t width = 0;
  // Dense value, or the values of selected rows.
  DeviceTensor device;
  // Device memory for values copied in every step (data, rows). Not used if `lasts`.
  DeviceLanding landing;
  bool lasts = false;
  // True if exactly one op, a host op, writes the variable, and not in place. Pinned memory of such a variable is new
  // in each run of that op (StepContext.row_memory), so copies read it in place.
  bool one_writer = false;
  bool on_host = true;
  bool on_device = false;
  // Pending copy to the host.
  std::shared_ptr<Arrival> arrival;
  // True if compute must wait for copies to the host before it writes this variable.
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
  // Lanes of this process, and examples in each lane.
  int lanes = 1;
  const int64_t* lane_batch = nullptr;
  DeviceTransfers* transfers = nullptr;
  // True if an output may share an input's memory: no operator of the program writes either of them in place.
  bool may_share = false;
  ProductPrecision precision = ProductPrecision::kFp32;
  // Borrowed from the executor; set with a precision of 16 bits.
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
  // Returns the host value of an input in one of the kernel's host_slots.
  template <typename T>
  const T& host_input(int lane, int slot, int i = 0) const {
    const DeviceVariable& var = input_var(slot, i);
    return std::get<T>(*var.host[var.shared ? 0 : static_cast<size_t>(lane)]);
  }

  // Resizes an output to the dims and lanes of `like`.
  absl::Status ResizeLike(int slot, const DeviceTensor& like, int i = 0) const {
    const std::vector<int64_t>& rows = like.lane_rows();
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
  // Submits work to the compute queue and copies to the copy queues; does not wait.
  virtual absl::Status Run(DeviceKernelContext& ctx) = 0;
  // Gate ops: does the rest of the work on the host when the values that Run copied there have arrived. Runs on another
  // thread while lanes go on; may wait for arrivals.
  virtual absl::Status Finish(DeviceKernelContext& ctx) {
    (void)ctx;
    return absl::OkStatus();
  }
};

// Device memory owned by a kernel across steps.
class DeviceArray {
 public:
  // `owner`: the owner in DeviceMemory; must outlive this object.
  explicit DeviceArray(std::string_view owner = "kernels") : owner_(owner) {}
  // Ensures at least `bytes` bytes. Contents are lost if the memory grows.
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
    DeviceKernelFactory factory;
    // Slots of inputs that the kernel reads, and of outputs that it writes, on the host.
    std::vector<std::string> host_slots;
  };
  static DeviceKernelRegistry& Global();
  // CHECK-fails on a type registered twice.
  void Register(std::string_view type, Entry entry);
  // Returns nullptr if there is none.
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

// Makes a kernel by its constructor from KernelInit, which cannot fail.
template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeDeviceKernel(const KernelInit& init) {
  return std::unique_ptr<OpDeviceKernel>(new Kernel(init));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_KERNEL_H_
