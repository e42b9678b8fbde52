// Records begin and end of work in a device's queues, measured by the device's clock and converted to this process's.
//
// Off by default: nothing is recorded and nothing is submitted to a queue. Used by the one thread that fills the
// compute queue.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_SPANS_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_SPANS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/tensor/device.h"

namespace weir {

// Returns the name of a queue in a trace: "copies in".
const char* DeviceQueueName(DeviceQueue queue);

class DeviceSpans {
 public:
  explicit DeviceSpans(DeviceRuntime* runtime) : runtime_(runtime) {}

  // Records spans that begin from now on under this step; -1 stops recording.
  absl::Status Record(int64_t step);
  bool recording() const { return step_ >= 0; }

  // Bracket the work submitted to one queue.
  absl::Status Begin(DeviceQueue queue, std::string name, std::string detail, int64_t bytes = -1);
  absl::Status End(DeviceQueue queue);

  struct Span {
    DeviceQueue queue = DeviceQueue::kCompute;
    std::string name, detail;
    int64_t bytes = -1, step = -1;
    // CLOCK_MONOTONIC.
    int64_t begin_ns = 0, end_ns = 0;
  };
  // Returns the spans that the device has finished, each once, ordered by begin within each queue; with `wait`, waits
  // for all of them. Drops spans that have no end yet.
  absl::StatusOr<std::vector<Span>> Take(bool wait);

 private:
  struct Open {
    Span span;
    std::unique_ptr<DeviceEvent> begin, end;
  };
  DeviceRuntime* const runtime_;
  int64_t step_ = -1;
  std::vector<Open> spans_;
  // Index in spans_ of the open span of each queue; -1: none.
  int64_t open_[kDeviceQueues] = {-1, -1, -1};
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_SPANS_H_
