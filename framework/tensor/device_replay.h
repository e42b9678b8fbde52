// Device that launches work repeated from step to step as graphs.
//
// Between PutOffCalls(true) and PutOffCalls(false) the device records the calls of Call: the function and the bytes of
// its arguments, which hold everything that it depends on: addresses, sizes, numbers. Before anything else reaches the
// compute queue (an event, a wait, a copy, memory that changes hands) the recorded calls are submitted, in their order.
// A stretch of calls whose bytes have occurred before becomes a graph: it is captured the third time and launched as a
// unit from then on. A call that differs by a single bit (another address, another batch, a step number or a learning
// rate passed as a number) is not replayed: such calls are submitted one by one, and end a stretch.
//
// A graph therefore needs no validity check: it is found by the calls that it replaces.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_REPLAY_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_REPLAY_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/tensor/device.h"

namespace weir {

// Adds graphs to a DeviceRuntime. Thread-safe like DeviceRuntime.
class ReplayingDevice : public DeviceRuntime {
 public:
  // Borrows `device`; the second constructor owns it.
  explicit ReplayingDevice(DeviceRuntime* device) : device_(device) {}
  explicit ReplayingDevice(std::unique_ptr<DeviceRuntime> device) : owned_(std::move(device)), device_(owned_.get()) {}
  ~ReplayingDevice() override;

  struct Statistics {
    int64_t calls = 0;     // that were put off
    int64_t captures = 0;  // graphs made
    int64_t replays = 0;   // graphs launched
    int64_t replayed = 0;  // calls in them
    int64_t failures = 0;  // of a capture
  };
  Statistics statistics() const;

  // Shortest stretch that becomes a graph; shorter ones are submitted call by call.
  static constexpr size_t kFewestCalls = 4;
  // Most stretches remembered, with or without a graph; beyond that the least recently launched one is dropped.
  static constexpr size_t kMostStretches = 256;

  const DeviceInfo& info() const override { return device_->info(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return device_->Allocate(bytes); }
  void Free(void* memory) override;
  absl::StatusOr<void*> AllocatePinned(size_t bytes) override { return device_->AllocatePinned(bytes); }
  void FreePinned(void* memory) override { device_->FreePinned(memory); }
  absl::Status CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) override;
  absl::Status CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) override;
  absl::Status CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) override;
  absl::Status Zero(DeviceQueue queue, void* device, size_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() override { return device_->NewEvent(); }
  absl::Status Record(DeviceQueue queue, DeviceEvent* event) override;
  absl::Status QueueWait(DeviceQueue queue, DeviceEvent* event) override;
  // Requires a recorded event; all calls before the record have been submitted.
  absl::StatusOr<bool> Reached(DeviceEvent* event) override { return device_->Reached(event); }
  absl::Status Wait(DeviceEvent* event) override { return device_->Wait(event); }
  absl::Status WaitForAll() override;
  absl::Status StartTiming() override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewTimedEvent() override { return device_->NewTimedEvent(); }
  absl::StatusOr<int64_t> TimeOf(DeviceEvent* event) override { return device_->TimeOf(event); }
  bool emulated() const override { return device_->emulated(); }
  void* stream(DeviceQueue queue) override;
  absl::Status Launched(int cuda_error) override { return device_->Launched(cuda_error); }
  absl::Status RunLoop(DeviceQueue queue, std::function<void()> loop) override;
  absl::Status Call(DeviceFunction function, const void* arguments, size_t bytes) override;
  absl::Status PutOffCalls(bool may) override;
  // Return an internal error: only this class captures graphs on its device.
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  absl::Status Launch(DeviceGraph* graph) override;

 private:
  struct Written {
    DeviceFunction function = nullptr;
    size_t begin = 0, bytes = 0;  // of bytes_
    uint64_t hash = 0;
  };
  // Recorded calls [begin, end).
  struct Range {
    size_t begin = 0, end = 0;
  };
  // Hashes of the last arguments of one call of a sequence.
  struct Lately {
    static constexpr int kKept = 4;
    uint64_t hash[kKept] = {};
    int next = 0;
  };
  struct Stretch {
    uint64_t hash = 0;
    int times = 0;
    // Once captured.
    std::unique_ptr<DeviceGraph> graph;
    std::vector<Written> calls;
    std::vector<std::max_align_t> bytes;
  };

  absl::Status PutOff(DeviceFunction function, const void* arguments, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FlushFor(DeviceQueue queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status PutRange(Range range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status PutOneByOne(Range range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Capture(Range range, Stretch* stretch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Holds(const Stretch& stretch, Range range) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const char* ArgumentsOf(const Written& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return reinterpret_cast<const char*>(bytes_.data()) + call.begin;
  }

  const std::unique_ptr<DeviceRuntime> owned_;
  DeviceRuntime* const device_;
  mutable Mutex mu_;
  bool may_put_off_ ABSL_GUARDED_BY(mu_) = false;
  bool gives_up_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Written> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<std::max_align_t> bytes_ ABSL_GUARDED_BY(mu_);
  size_t bytes_used_ ABSL_GUARDED_BY(mu_) = 0;
  // Sequences by the hash of their functions.
  std::unordered_map<uint64_t, std::vector<Lately>> sequences_ ABSL_GUARDED_BY(mu_);
  // Launched last is first.
  std::list<Stretch> stretches_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, std::list<Stretch>::iterator> by_hash_ ABSL_GUARDED_BY(mu_);
  Statistics statistics_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_REPLAY_H_
