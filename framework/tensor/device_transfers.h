// Copies between this process and a device through pinned memory, in queues of their own, ordered with the compute
// queue.
//
// Rules, each enforced by events:
//   - work submitted to the compute queue after In() sees the bytes of In();
//   - In() overwrites nothing that earlier work of the compute queue still has to read;
//   - Out() reads the results of all earlier work of the compute queue;
//   - work submitted to the compute queue after HoldForCopiesOut() does not overwrite the source of an Out() before;
//   - Land() waits only for work submitted to the compute queue before the previous Land() of the same landing.
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

// Bytes being copied to this process.
class Arrival {
 public:
  Arrival() = default;
  // Waits for the copy, because the memory is reused.
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // Blocks until the bytes have arrived. They are valid as long as this object.
  absl::StatusOr<const void*> Wait();

 private:
  friend class DeviceTransfers;
  DeviceRuntime* runtime_ = nullptr;
  std::shared_ptr<PinnedBlock> block_;  // null for no bytes
  std::unique_ptr<DeviceEvent> event_;
};

// Memory for data copied in every step: two blocks used alternately, so that the next step's copy can run while this
// step's data is in use.
class DeviceLanding {
 private:
  friend class DeviceTransfers;
  struct Half {
    std::shared_ptr<DeviceBlock> block;
    // Position of the compute queue at the landing on the other half: all readers of this half come before it.
    std::unique_ptr<DeviceEvent> read;
  };
  Half halves_[2];
  int next_ = 0;
};

class DeviceTransfers {
 public:
  // Borrows `memory`.
  explicit DeviceTransfers(DeviceMemory* memory)
      : memory_(memory), runtime_(memory->runtime()), spans_(memory->runtime()) {}
  // Waits for all copies to the device.
  ~DeviceTransfers();

  struct Piece {
    const void* data = nullptr;
    size_t bytes = 0;
    // Pinned memory that holds the piece, for pieces on the host; null for other memory.
    std::shared_ptr<const Buffer> pinned = nullptr;
  };
  // Copies the pieces, one after the other, to `device`. Pieces may be changed as soon as this returns, except pinned
  // ones: these are copied in place, must not change until the copy is done, and are kept alive until then. `what` is
  // the name in a trace.
  absl::Status In(void* device, absl::Span<const Piece> pieces, std::string_view what = "");
  // Copies the pieces to a block of `landing`, which stays valid until the next but one Land on it. All readers of the
  // previous block must have been submitted to the compute queue. At least one byte.
  absl::StatusOr<std::shared_ptr<DeviceBlock>> Land(DeviceLanding* landing, absl::Span<const Piece> pieces,
                                                    std::string_view owner, std::string_view what = "");
  // Copies pieces of device memory, one after the other, to this process.
  absl::StatusOr<std::shared_ptr<Arrival>> Out(absl::Span<const Piece> pieces, std::string_view what = "");

  // Bracket work submitted to the compute queue.
  absl::Status BeforeCompute();
  void AfterCompute() { computed_ = true; }
  absl::Status HoldForCopiesOut();

  DeviceMemory* memory() const { return memory_; }
  DeviceRuntime* runtime() const { return runtime_; }
  // Spans of the copies, and of the work that the users of the compute queue record.
  DeviceSpans& spans() { return spans_; }
  // Bytes copied so far.
  int64_t bytes_in() const { return bytes_in_; }
  // Bytes of bytes_in() that were not pinned and were staged in pinned memory.
  int64_t bytes_staged() const { return bytes_staged_; }
  int64_t bytes_out() const { return bytes_out_; }

 private:
  absl::Status Bring(void* device, absl::Span<const Piece> pieces, size_t bytes, std::string_view what);
  absl::Status Order(DeviceQueue first, DeviceQueue then, std::unique_ptr<DeviceEvent>* event);

  DeviceMemory* const memory_;
  DeviceRuntime* const runtime_;
  DeviceSpans spans_;
  // Work submitted since the last wait between two queues.
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
