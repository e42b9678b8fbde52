#include "framework/tensor/device_spans.h"

#include <utility>

#include "framework/base/status_macros.h"

namespace weir {

const char* DeviceQueueName(DeviceQueue queue) {
  switch (queue) {
    case DeviceQueue::kCompute:
      return "compute";
    case DeviceQueue::kCopyIn:
      return "copies in";
    case DeviceQueue::kCopyOut:
      return "copies out";
  }
  return "queue";
}

absl::Status DeviceSpans::Record(int64_t step) {
  // Called in every step, because the clocks of device and host drift apart during a long profile.
  if (step >= 0) RETURN_IF_ERROR(runtime_->StartTiming());
  step_ = step;
  return absl::OkStatus();
}

absl::Status DeviceSpans::Begin(DeviceQueue queue, std::string name, std::string detail, int64_t bytes) {
  if (!recording()) return absl::OkStatus();
  // Overwrites a span that was begun and never ended because its work failed.
  int64_t& open = open_[static_cast<int>(queue)];
  Open o;
  o.span = {.queue = queue, .name = std::move(name), .detail = std::move(detail), .bytes = bytes, .step = step_};
  ASSIGN_OR_RETURN(o.begin, runtime_->NewTimedEvent());
  RETURN_IF_ERROR(runtime_->Record(queue, o.begin.get()));
  open = static_cast<int64_t>(spans_.size());
  spans_.push_back(std::move(o));
  return absl::OkStatus();
}

absl::Status DeviceSpans::End(DeviceQueue queue) {
  int64_t& open = open_[static_cast<int>(queue)];
  if (open < 0) return absl::OkStatus();
  Open& o = spans_[static_cast<size_t>(std::exchange(open, -1))];
  ASSIGN_OR_RETURN(o.end, runtime_->NewTimedEvent());
  return runtime_->Record(queue, o.end.get());
}

absl::StatusOr<std::vector<DeviceSpans::Span>> DeviceSpans::Take(bool wait) {
  std::vector<Span> spans;
  std::vector<Open> left;
  for (Open& o : std::exchange(spans_, {})) {
    // Leave out work that failed, which has no end.
    if (o.end == nullptr) continue;
    if (wait) RETURN_IF_ERROR(runtime_->Wait(o.end.get()));
    ASSIGN_OR_RETURN(const bool reached, runtime_->Reached(o.end.get()));
    if (!reached) {
      left.push_back(std::move(o));
      continue;
    }
    ASSIGN_OR_RETURN(o.span.begin_ns, runtime_->TimeOf(o.begin.get()));
    ASSIGN_OR_RETURN(o.span.end_ns, runtime_->TimeOf(o.end.get()));
    spans.push_back(std::move(o.span));
  }
  spans_ = std::move(left);
  for (int64_t& open : open_) open = -1;
  return spans;
}

}  // namespace weir
