// Copies between this process and a device, through pinned memory, in queues of their own, in step with what computes.
//
// The rules, each held by events:
//   - what is put into the compute queue after In() sees what In() brought;
//   - In() overwrites nothing that the compute queue had still to read by then;
//   - Out() takes what the compute queue had written by then;
//   - what Out() takes is not overwritten by what is put into the compute queue after HoldForCopiesOut().
//
// Used by the one thread that fills the compute queue; an Arrival may be waited for by any thread.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/device.h"
#include "framework/tensor/device_memory.h"

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

class DeviceTransfers {
 public:
  // Borrowed.
  explicit DeviceTransfers(DeviceMemory* memory) : memory_(memory), runtime_(memory->runtime()) {}
  // Waits until nothing is on its way in.
  ~DeviceTransfers();

  struct Piece {
    const void* data = nullptr;
    size_t bytes = 0;
  };
  // The pieces, one after the other, to `device`. They may be changed as soon as this returns.
  absl::Status In(void* device, absl::Span<const Piece> pieces);
  // Pieces of device memory, one after the other.
  absl::StatusOr<std::shared_ptr<Arrival>> Out(absl::Span<const Piece> pieces);

  // Around what is put into the compute queue.
  absl::Status BeforeCompute();
  void AfterCompute() { computed_ = true; }
  absl::Status HoldForCopiesOut();

  DeviceMemory* memory() const { return memory_; }
  DeviceRuntime* runtime() const { return runtime_; }
  // Bytes so far.
  int64_t bytes_in() const { return bytes_in_; }
  int64_t bytes_out() const { return bytes_out_; }

 private:
  absl::Status Order(DeviceQueue first, DeviceQueue then, std::unique_ptr<DeviceEvent>* event);

  DeviceMemory* const memory_;
  DeviceRuntime* const runtime_;
  // Since the last time that one queue was told to wait for another.
  bool computed_ = false;
  bool brought_ = false;
  bool taken_ = false;
  std::unique_ptr<DeviceEvent> compute_, in_, out_;
  struct OnItsWay {
    std::unique_ptr<DeviceEvent> event;
    std::shared_ptr<PinnedBlock> block;
  };
  std::deque<OnItsWay> on_their_way_;
  int64_t bytes_in_ = 0;
  int64_t bytes_out_ = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_TRANSFERS_H_
