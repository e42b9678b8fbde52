// When a device's queues did what: begin and end of pieces of work, by the device's own clock, brought to this
// process's.
//
// Off until told otherwise: then nothing is recorded and nothing is put into a queue. Used by the one thread that fills
// the compute queue.
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

// What a trace calls a queue: "copies in".
const char* DeviceQueueName(DeviceQueue queue);

class DeviceSpans {
 public:
  explicit DeviceSpans(DeviceRuntime* runtime) : runtime_(runtime) {}

  // What begins from now on is recorded as of this step; -1: not at all.
  absl::Status Record(int64_t step);
  bool recording() const { return step_ >= 0; }

  // Around what is put into one queue.
  absl::Status Begin(DeviceQueue queue, std::string name, std::string detail, int64_t bytes = -1);
  absl::Status End(DeviceQueue queue);

  struct Span {
    DeviceQueue queue = DeviceQueue::kCompute;
    std::string name, detail;
    int64_t bytes = -1, step = -1;
    // CLOCK_MONOTONIC.
    int64_t begin_ns = 0, end_ns = 0;
  };
  // Those whose ends the device has come to, each once, in order of their beginnings in each queue; `wait`: all of
  // them.
  absl::StatusOr<std::vector<Span>> Take(bool wait);

 private:
  struct Open {
    Span span;
    std::unique_ptr<DeviceEvent> begin, end;
  };
  DeviceRuntime* const runtime_;
  int64_t step_ = -1;
  std::vector<Open> spans_;
  // Places in spans_ of those that have begun; -1: none.
  int64_t open_[kDeviceQueues] = {-1, -1, -1};
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_SPANS_H_
