// Interface to a device that computes beside this process: its memory, its queues, and copies between process and
// device.
//
// DeviceRuntime covers the operations of CUDA; code above it does not call CUDA. Two implementations:
// framework/tensor/cuda_device.h, and an emulation on the host (tests/testing/devices/emulated_device.h), whose "device
// memory" no other code can access and whose queues run late and in any order that events allow, so that tests without
// a GPU find accesses from the wrong side and missing waits.
//
// Thread-safe: calls may come from several threads; work in a queue has the order in which the calls return.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Queues of a device. Work in one queue runs in the order of submission; only events order work of different queues.
enum class DeviceQueue { kCompute, kCopyIn, kCopyOut };
inline constexpr int kDeviceQueues = 3;

struct DeviceInfo {
  int id = 0;
  std::string name;    // "CUDA device 0 (NVIDIA H200)"
  int64_t memory = 0;  // bytes in all
};

// Position in a queue. May be recorded repeatedly; a wait refers to the latest record before it.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Captured work of the compute queue, which can be submitted again as a unit.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Memory. Use DeviceMemory (framework/tensor/device_memory.h) instead, which reuses what was freed.
class DeviceAllocator {
 public:
  // Allocates device memory, aligned to 256 bytes. Free does not wait: the memory must not be in use.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Allocates pinned memory of this process, which copies read and write directly, aligned to 64 bytes.
  virtual absl::StatusOr<void*> AllocatePinned(size_t bytes) = 0;
  virtual void FreePinned(void* memory) = 0;

 protected:
  ~DeviceAllocator() = default;
};

class DeviceCopies {
 public:
  // Submit work to a queue and return. `pinned` must stay valid until the work is done.
  virtual absl::Status CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) = 0;
  virtual absl::Status CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) = 0;
  virtual absl::Status CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) = 0;
  virtual absl::Status Zero(DeviceQueue queue, void* device, size_t bytes) = 0;

 protected:
  ~DeviceCopies() = default;
};

// Order of work in different queues, and waits of this process.
class DeviceEvents {
 public:
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() = 0;
  virtual absl::Status Record(DeviceQueue queue, DeviceEvent* event) = 0;
  // Makes all later work of the queue wait for the event.
  virtual absl::Status QueueWait(DeviceQueue queue, DeviceEvent* event) = 0;
  virtual absl::StatusOr<bool> Reached(DeviceEvent* event) = 0;
  // Blocks the calling thread. DeadlineExceeded after kDeadlineSeconds, many times the run time of any kernel of Weir.
  virtual absl::Status Wait(DeviceEvent* event) = 0;
  // Waits for all queues.
  virtual absl::Status WaitForAll() = 0;

 protected:
  static constexpr int kDeadlineSeconds = 300;

  ~DeviceEvents() = default;
};

class DeviceTiming {
 public:
  // Compares the device's clock with this process's. Waits for the work in the compute queue if it has not been called
  // for some time.
  virtual absl::Status StartTiming() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> NewTimedEvent() = 0;
  // Returns the time at which an event of NewTimedEvent was reached, in nanoseconds of CLOCK_MONOTONIC, as exact as the
  // last StartTiming could compare the clocks.
  virtual absl::StatusOr<int64_t> TimeOf(DeviceEvent* event) = 0;

 protected:
  ~DeviceTiming() = default;
};

// Launch of kernels (ops/device/launch.h). CUDA: kernels are launched on the stream, and Launched converts the result
// of the launch. Emulation: RunLoop submits the functor as a loop, which runs when the queue reaches it.
class DeviceKernels {
 public:
  virtual bool emulated() const = 0;
  virtual void* stream(DeviceQueue queue) = 0;
  virtual absl::Status Launched(int cuda_error) = 0;
  virtual absl::Status RunLoop(DeviceQueue queue, std::function<void()> loop) = 0;

 protected:
  ~DeviceKernels() = default;
};

class DeviceCapture {
 public:
  // Capture the work that this thread submits to the compute queue between the two calls instead of running it:
  // kernels, Zero and CopyWithin; an event, a copy to or from the host or an allocation is an error. Other threads must
  // not use the queue meanwhile.
  virtual absl::Status BeginCapture() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  // Submits a graph to the compute queue. The graph must exist until its work is done.
  virtual absl::Status Launch(DeviceGraph* graph) = 0;

 protected:
  ~DeviceCapture() = default;
};

class DeviceRuntime;
// Function that submits work to the compute queue. Its arguments are bytes: numbers, and pointers to objects that
// outlive the work.
using DeviceFunction = absl::Status (*)(DeviceRuntime& runtime, const void* arguments);

// Runtime of one device. Every call that reaches the device may return ResourceExhausted if memory is exhausted, or
// Unavailable if the device is lost (a kernel failed, the card fell off the bus). A lost device stays lost: the process
// must end.
class DeviceRuntime : public DeviceAllocator,
                      public DeviceCopies,
                      public DeviceEvents,
                      public DeviceTiming,
                      public DeviceKernels,
                      public DeviceCapture {
 public:
  virtual ~DeviceRuntime() = default;
  virtual const DeviceInfo& info() const = 0;

  // Calls function(arguments), now or before any other work is submitted to the compute queue. Equal arguments must
  // submit equal work, and the function must not allocate: its work may be captured, and replayed in place of a later
  // call (framework/tensor/device_replay.h).
  virtual absl::Status Call(DeviceFunction function, const void* arguments, size_t bytes) {
    (void)bytes;
    return function(*this, arguments);
  }
  // Permits or forbids Call to defer functions until the next event, copy or wait. Forbidden by default.
  virtual absl::Status PutOffCalls(bool may) {
    (void)may;
    return absl::OkStatus();
  }
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_H_
