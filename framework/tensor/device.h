// A device that computes beside this process: its memory, its queues, and copies between the two.
//
// DeviceRuntime is what CUDA offers, and nothing above it calls CUDA. Two implementations:
// framework/tensor/cuda_device.h, and an emulation on the host (tests/testing/emulated_device.h), whose "device memory"
// no other code can touch and whose queues run late and in any order that events allow: so tests without a GPU find
// accesses from the wrong side and waits that are missing.
//
// Thread-safe: calls may come from several threads, but a queue's order is that in which calls return.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Work in one queue runs in the order in which it was put there; between two queues only events order it.
enum class DeviceQueue { kCompute, kCopyIn, kCopyOut };
inline constexpr int kDeviceQueues = 3;

struct DeviceInfo {
  int id = 0;
  std::string name;    // "CUDA device 0 (NVIDIA H200)"
  int64_t memory = 0;  // bytes in all
};

// A place in a queue. May be recorded again and again; waits are for the latest record before the wait.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work of the compute queue that was captured, to be put there again as one.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

class DeviceRuntime;
// Puts work into the compute queue by the bytes of its arguments: pointers to what outlives it, and numbers.
using DeviceFunction = absl::Status (*)(DeviceRuntime& runtime, const void* arguments);

// Errors of every call that reaches the device: ResourceExhausted when memory is out, Unavailable when the device is
// lost (a kernel that failed, a card that fell off the bus). A lost device stays lost: whoever meets it ends.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual const DeviceInfo& info() const = 0;

  // Device memory, aligned to 256 bytes. Free waits for nothing: nobody may be using it. Callers want DeviceMemory
  // (framework/tensor/device_memory.h), which keeps what is freed.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Memory of this process that copies read and write without a detour, aligned to 64 bytes.
  virtual absl::StatusOr<void*> AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Put work into a queue and return. `pinned` must live until the work is done.
  virtual absl::Status CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) = 0;
  virtual absl::Status CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) = 0;
  virtual absl::Status CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) = 0;
  virtual absl::Status Zero(DeviceQueue queue, void* device, size_t bytes) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() = 0;
  virtual absl::Status Record(DeviceQueue queue, DeviceEvent* event) = 0;
  // What is put into the queue from now on waits for the event.
  virtual absl::Status QueueWait(DeviceQueue queue, DeviceEvent* event) = 0;
  virtual absl::StatusOr<bool> Reached(DeviceEvent* event) = 0;
  // This thread waits. DeadlineExceeded after kDeadlineSeconds: no kernel of ours takes a fraction of it.
  virtual absl::Status Wait(DeviceEvent* event) = 0;
  // Waits for all queues.
  virtual absl::Status WaitForAll() = 0;

  // An event whose time can be asked for, once it has been reached: nanoseconds of CLOCK_MONOTONIC, as near as the
  // device's clock was to this process's at the last StartTiming. That waits for what is in the compute queue when it
  // has not been called for some time.
  virtual absl::Status StartTiming() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> NewTimedEvent() = 0;
  virtual absl::StatusOr<int64_t> TimeOf(DeviceEvent* event) = 0;

  // Kernels (ops/device/launch.h). CUDA: launched on the stream, and what the launch returned goes through Launched.
  // Emulation: the same functor as a loop, which runs when the queue comes to it.
  virtual bool emulated() const = 0;
  virtual void* stream(DeviceQueue queue) = 0;
  virtual absl::Status Launched(int cuda_error) = 0;
  virtual absl::Status RunLoop(DeviceQueue queue, std::function<void()> loop) = 0;

  // function(arguments), now or before anything else that is put into the compute queue. The same function with the
  // same bytes does the same, and allocates nothing: so it may be captured, and replayed where it would be called again
  // (framework/tensor/device_replay.h).
  virtual absl::Status Call(DeviceFunction function, const void* arguments, size_t bytes) {
    (void)bytes;
    return function(*this, arguments);
  }
  // Whether Call may put off what it is given until the next event, copy or wait. No, unless told so.
  virtual absl::Status PutOffCalls(bool may) {
    (void)may;
    return absl::OkStatus();
  }

  // What this thread puts into the compute queue between the two is not run but kept: kernels, Zero and CopyWithin; an
  // event, a copy to or from the host or an allocation is an error. Other threads must leave the queue alone meanwhile.
  virtual absl::Status BeginCapture() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // The graph must live until what it was launched for is done.
  virtual absl::Status Launch(DeviceGraph* graph) = 0;

 protected:
  static constexpr int kDeadlineSeconds = 300;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_H_
