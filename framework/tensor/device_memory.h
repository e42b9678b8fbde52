// Allocates memory of a device, accounted by owner, and the pinned memory that copies read and write; keeps released
// memory for reuse. Thread-safe.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_MEMORY_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/tensor/device.h"
#include "framework/tensor/tensor.h"

namespace weir {

class DeviceMemory;

// Block of device memory. Destruction returns it to DeviceMemory; work already in a queue may still use it: the device
// orders the next user's work after that.
class DeviceBlock {
 public:
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  friend class DeviceMemory;
  DeviceBlock(DeviceMemory* memory, void* data, size_t size, std::string owner)
      : memory_(memory), data_(data), size_(size), owner_(std::move(owner)) {}
  DeviceMemory* const memory_;
  void* const data_;
  const size_t size_;
  const std::string owner_;
};

// Block of pinned memory of this process. Destruction returns it to DeviceMemory; it must not be in use.
class PinnedBlock {
 public:
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  friend class DeviceMemory;
  PinnedBlock(DeviceMemory* memory, void* data, size_t size) : memory_(memory), data_(data), size_(size) {}
  DeviceMemory* const memory_;
  void* const data_;
  const size_t size_;
};

class DeviceMemory : public PinnedMemory {
 public:
  // `runtime` is borrowed, and outlives this and every block.
  explicit DeviceMemory(DeviceRuntime* runtime) : runtime_(runtime) {}
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Allocates `bytes` > 0. ResourceExhausted names the request, its owner, and the bytes held by each owner.
  absl::StatusOr<std::shared_ptr<DeviceBlock>> Allocate(size_t bytes, std::string_view owner);
  // Allocates pinned memory. ResourceExhausted if this process may pin no more.
  absl::StatusOr<std::shared_ptr<PinnedBlock>> AllocatePinned(size_t bytes);
  // Allocates pinned memory as a tensor's buffer, which must not outlive this object. If none is left, logs that once;
  // from then on returns only reused buffers, or null: the remaining pinned memory is reserved for copies, which need
  // it.
  std::shared_ptr<Buffer> NewBuffer(size_t bytes) override;

  struct Use {
    std::string owner;
    size_t bytes = 0;
  };
  struct Statistics {
    size_t in_use = 0;
    size_t most_in_use = 0;
    size_t kept = 0;          // given back, not to the device
    size_t pinned = 0;        // of this process
    int64_t buffers = 0;      // that NewBuffer has given so far
    std::vector<Use> owners;  // largest first
  };
  Statistics statistics() const;

  DeviceRuntime* runtime() const { return runtime_; }
  // Objects that libraries attach to the device (a handle of cuBLAS, and memory for it), by name; destroyed with this
  // object. Not thread-safe.
  std::map<std::string, std::shared_ptr<void>>& attached() { return attached_; }

 private:
  friend class DeviceBlock;
  friend class PinnedBlock;
  // Released memory; free for reuse when every queue has passed its event.
  struct Kept {
    void* data = nullptr;
    std::unique_ptr<DeviceEvent> events[kDeviceQueues];
  };

  void GiveBack(void* data, size_t size, const std::string& owner);
  void GiveBackPinned(void* data, size_t size);
  std::shared_ptr<PinnedBlock> TakeKeptPinned(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status OutOfMemory(size_t bytes, std::string_view owner, const absl::Status& why) const;

  DeviceRuntime* const runtime_;
  std::map<std::string, std::shared_ptr<void>> attached_;
  mutable Mutex mu_;
  std::multimap<size_t, Kept> kept_ ABSL_GUARDED_BY(mu_);
  std::multimap<size_t, void*> kept_pinned_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> by_owner_ ABSL_GUARDED_BY(mu_);
  size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;
  size_t most_in_use_ ABSL_GUARDED_BY(mu_) = 0;
  size_t kept_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t pinned_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t buffers_ ABSL_GUARDED_BY(mu_) = 0;
  bool pinned_is_out_ ABSL_GUARDED_BY(mu_) = false;  // for NewBuffer
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_MEMORY_H_
