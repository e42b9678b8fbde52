// Memory of a device, handed out by owner and kept when it is given back; and the pinned memory that copies read and
// write. Thread-safe.
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

// Device memory. Going away gives it back; work that is in a queue by then may still use it: whoever gets it next waits
// on the device.
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

// Pinned memory of this process. Going away gives it back; nothing may be using it.
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

  // `bytes` > 0. ResourceExhausted says what was asked for, by whom, and who holds how much.
  absl::StatusOr<std::shared_ptr<DeviceBlock>> Allocate(size_t bytes, std::string_view owner);
  // ResourceExhausted when this process may pin no more.
  absl::StatusOr<std::shared_ptr<PinnedBlock>> AllocatePinned(size_t bytes);
  // The same as memory of a tensor, which must not outlive this. When there is none left the log says so, once, and
  // from then on only what has been given back is handed out: the rest is left to copies, which cannot do without.
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
  // What libraries keep with the device (a handle of cuBLAS, and memory for it), by name; goes with this. Not
  // thread-safe.
  std::map<std::string, std::shared_ptr<void>>& attached() { return attached_; }

 private:
  friend class DeviceBlock;
  friend class PinnedBlock;
  // When every queue has passed its event, the memory is nobody's.
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
