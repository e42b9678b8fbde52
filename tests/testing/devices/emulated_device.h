// A device emulated on the host, for tests of everything above DeviceRuntime.
//
// Its memory can be accessed only while one of its copies or kernels runs: any other access crashes the test. Queues
// are lazy: nothing runs before a thread waits, and then the next piece of work is drawn at random from the queues that
// events let run. So a missing wait shows as a wrong number for some seed. Fresh memory holds NaN.
#ifndef WEIR_TESTS_TESTING_DEVICES_EMULATED_DEVICE_H_
#define WEIR_TESTS_TESTING_DEVICES_EMULATED_DEVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/tensor/device.h"

namespace weir {

struct EmulatedDeviceOptions {
  uint64_t seed = 1;
  size_t memory = size_t{1} << 30;
  size_t pinned = size_t{1} << 30;
  // Number of kernels and copies after which the device is lost; -1: never.
  int64_t lost_after = -1;
};

class EmulatedDevice : public DeviceRuntime {
 public:
  explicit EmulatedDevice(EmulatedDeviceOptions options = {});
  ~EmulatedDevice() override;

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  absl::StatusOr<void*> AllocatePinned(size_t bytes) override;
  void FreePinned(void* memory) override;
  absl::Status CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) override;
  absl::Status CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) override;
  absl::Status CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) override;
  absl::Status Zero(DeviceQueue queue, void* device, size_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() override;
  absl::Status Record(DeviceQueue queue, DeviceEvent* event) override;
  absl::Status QueueWait(DeviceQueue queue, DeviceEvent* event) override;
  absl::StatusOr<bool> Reached(DeviceEvent* event) override;
  absl::Status Wait(DeviceEvent* event) override;
  absl::Status WaitForAll() override;
  absl::Status StartTiming() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewTimedEvent() override { return NewEvent(); }
  absl::StatusOr<int64_t> TimeOf(DeviceEvent* event) override;
  bool emulated() const override { return true; }
  void* stream(DeviceQueue) override { return nullptr; }
  absl::Status Launched(int) override { return absl::OkStatus(); }
  absl::Status RunLoop(DeviceQueue queue, std::function<void()> loop) override;
  // Capture and launch of graphs. A graph is a list of loops: pointers in it have the values of the capture, as on
  // CUDA.
  absl::Status BeginCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override;
  absl::Status Launch(DeviceGraph* graph) override;

  // Returns the number of kernels and copies that have run.
  int64_t ran() const;
  // Returns the bytes that are allocated and not freed.
  size_t allocated() const;

 private:
  // Progress of an event; outlives the event while queues refer to it.
  struct Progress {
    int64_t recorded = 0;
    int64_t reached = 0;
    int64_t reached_ns = 0;  // CLOCK_MONOTONIC
  };
  class Event;
  class Graph;
  struct Work {
    std::function<void()> run;  // empty: records or waits
    std::shared_ptr<Progress> event;
    int64_t ticket = 0;
    bool waits = false;
  };

  absl::Status Put(DeviceQueue queue, Work work);
  // Returns an error while a graph is captured, for calls that cannot be part of one.
  absl::Status NotWhileCapturing(DeviceQueue queue, std::string_view what) const;
  absl::Status RunUntil(const std::function<bool()>& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Runnable(const Work& work) const { return !work.waits || work.event->reached >= work.ticket; }
  absl::Status Lost() const;
  void Open(bool open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckInside(const void* device, size_t bytes) const;
  void CheckPinned(const void* host, size_t bytes) const;

  const EmulatedDeviceOptions options_;
  DeviceInfo info_;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* arena_ = nullptr;  // device memory, inside the mapped range
  mutable Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::deque<Work> queues_[kDeviceQueues] ABSL_GUARDED_BY(mu_);
  std::shared_ptr<std::vector<std::function<void()>>> capturing_ ABSL_GUARDED_BY(mu_);
  std::thread::id capturing_thread_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, size_t> used_ ABSL_GUARDED_BY(mu_);         // size by offset
  std::map<const char*, size_t> pinned_ ABSL_GUARDED_BY(mu_);  // size by begin
  int64_t ran_ ABSL_GUARDED_BY(mu_) = 0;
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_DEVICES_EMULATED_DEVICE_H_
