// Copies between this process and a device, through pinned memory, in queues of their own, in step with what computes.
//
// The rules, each held by events:
//   - what is put into the compute queue after In() sees what In() brought;
//   - In() overwrites nothing that the compute queue had still to read by then;
//   - Out() takes what the compute queue had written by then;
//   - what Out() takes is not overwritten by what is put into the compute queue after HoldForCopiesOut();
//   - Land() waits only for what the compute queue was given before the Land() before it.
//
// Used by the one thread that fills the compute queue; an Arrival may be waited for by any thread.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/device.h"
#include "framework/tensor/device_memory.h"
#include "framework/tensor/device_spans.h"

namespace weir {

// Bytes on their way to this process.
class Arrival {
 public:
  Arrival() = default;
  // Waits, too, if nobody has: the memory goes to others.
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // Blocks. The bytes live as long as this does.
  absl::StatusOr<const void*> Wait();

 private:
  friend class DeviceTransfers;
  DeviceRuntime* runtime_ = nullptr;
  std::shared_ptr<PinnedBlock> block_;  // null for no bytes
  std::unique_ptr<DeviceEvent> event_;
};

// Memory for what is brought anew from step to step: two pieces by turns, so that the next step's copy is under way
// while this step's is computed with.
class DeviceLanding {
 private:
  friend class DeviceTransfers;
  struct Half {
    std::shared_ptr<DeviceBlock> block;
    // Where the compute queue was when the other half was landed on: behind all that reads this one.
    std::unique_ptr<DeviceEvent> read;
  };
  Half halves_[2];
  int next_ = 0;
};

class DeviceTransfers {
 public:
  // Borrowed.
  explicit DeviceTransfers(DeviceMemory* memory)
      : memory_(memory), runtime_(memory->runtime()), spans_(memory->runtime()) {}
  // Waits until nothing is on its way in.
  ~DeviceTransfers();

  struct Piece {
    const void* data = nullptr;
    size_t bytes = 0;
    // On the host: the pinned memory that it lies in; null for other memory.
    std::shared_ptr<const Buffer> pinned = nullptr;
  };
  // The pieces, one after the other, to `device`. They may be changed as soon as this returns, except those that are
  // pinned: these are copied from where they lie, must stay as they are, and are kept as long as it takes. `what`: for
  // a trace.
  absl::Status In(void* device, absl::Span<const Piece> pieces, std::string_view what = "");
  // The same, to memory that is the landing's until the next time but one. What read the last must be in the compute
  // queue by now. At least one byte.
  absl::StatusOr<std::shared_ptr<DeviceBlock>> Land(DeviceLanding* landing, absl::Span<const Piece> pieces,
                                                    std::string_view owner, std::string_view what = "");
  // Pieces of device memory, one after the other.
  absl::StatusOr<std::shared_ptr<Arrival>> Out(absl::Span<const Piece> pieces, std::string_view what = "");

  // Around what is put into the compute queue.
  absl::Status BeforeCompute();
  void AfterCompute() { computed_ = true; }
  absl::Status HoldForCopiesOut();

  DeviceMemory* memory() const { return memory_; }
  DeviceRuntime* runtime() const { return runtime_; }
  // Where copies are recorded, and what computes for those who fill the compute queue.
  DeviceSpans& spans() { return spans_; }
  // Bytes so far.
  int64_t bytes_in() const { return bytes_in_; }
  // Of those, what was not pinned and went through memory that is.
  int64_t bytes_staged() const { return bytes_staged_; }
  int64_t bytes_out() const { return bytes_out_; }

 private:
  absl::Status Bring(void* device, absl::Span<const Piece> pieces, size_t bytes, std::string_view what);
  absl::Status Order(DeviceQueue first, DeviceQueue then, std::unique_ptr<DeviceEvent>* event);

  DeviceMemory* const memory_;
  DeviceRuntime* const runtime_;
  DeviceSpans spans_;
  // Since the last time that one queue was told to wait for another.
  bool computed_ = false;
  bool brought_ = false;
  bool taken_ = false;
  std::unique_ptr<DeviceEvent> compute_, in_, out_;
  struct OnItsWay {
    std::unique_ptr<DeviceEvent> event;
    std::shared_ptr<PinnedBlock> block;  // null when all was pinned
    std::vector<std::shared_ptr<const Buffer>> pinned;
  };
  std::deque<OnItsWay> on_their_way_;
  int64_t bytes_in_ = 0;
  int64_t bytes_staged_ = 0;
  int64_t bytes_out_ = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_
