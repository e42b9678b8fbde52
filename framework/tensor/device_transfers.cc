#include "framework/tensor/device_transfers.h"

#include <cstring>
#include <string>
#include <utility>

#include "framework/base/status_macros.h"

namespace weir {

absl::StatusOr<const void*> Arrival::Wait() {
  if (block_ == nullptr) return static_cast<const void*>(nullptr);
  RETURN_IF_ERROR(runtime_->Wait(event_.get()));
  return static_cast<const void*>(block_->data());
}

Arrival::~Arrival() {
  if (event_ != nullptr) (void)runtime_->Wait(event_.get());
}

DeviceTransfers::~DeviceTransfers() {
  for (OnItsWay& copy : on_their_way_) (void)runtime_->Wait(copy.event.get());
}

absl::Status DeviceTransfers::Order(DeviceQueue first, DeviceQueue then, std::unique_ptr<DeviceEvent>* event) {
  if (*event == nullptr) {
    ASSIGN_OR_RETURN(*event, runtime_->NewEvent());
  }
  RETURN_IF_ERROR(runtime_->Record(first, event->get()));
  return runtime_->QueueWait(then, event->get());
}

absl::Status DeviceTransfers::In(void* device, absl::Span<const Piece> pieces, std::string_view what) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  if (bytes == 0) return absl::OkStatus();
  if (computed_) {
    RETURN_IF_ERROR(Order(DeviceQueue::kCompute, DeviceQueue::kCopyIn, &compute_));
    computed_ = false;
  }
  return Bring(device, pieces, bytes, what);
}

absl::StatusOr<std::shared_ptr<DeviceBlock>> DeviceTransfers::Land(DeviceLanding* landing,
                                                                   absl::Span<const Piece> pieces,
                                                                   std::string_view owner, std::string_view what) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  DeviceLanding::Half& half = landing->halves_[landing->next_];
  DeviceLanding::Half& last = landing->halves_[1 - landing->next_];
  landing->next_ = 1 - landing->next_;
  if (last.block != nullptr) {
    if (last.read == nullptr) {
      ASSIGN_OR_RETURN(last.read, runtime_->NewEvent());
    }
    RETURN_IF_ERROR(runtime_->Record(DeviceQueue::kCompute, last.read.get()));
  }
  if (half.block == nullptr || half.block->size() < bytes) {
    half.block.reset();
    ASSIGN_OR_RETURN(half.block, memory_->Allocate(bytes, owner));
  } else if (half.read != nullptr) {
    RETURN_IF_ERROR(runtime_->QueueWait(DeviceQueue::kCopyIn, half.read.get()));
  }
  RETURN_IF_ERROR(Bring(half.block->data(), pieces, bytes, what));
  return half.block;
}

absl::Status DeviceTransfers::Bring(void* device, absl::Span<const Piece> pieces, size_t bytes, std::string_view what) {
  while (!on_their_way_.empty()) {
    ASSIGN_OR_RETURN(const bool done, runtime_->Reached(on_their_way_.front().event.get()));
    if (!done) break;
    on_their_way_.pop_front();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<PinnedBlock> block, memory_->AllocatePinned(bytes));
  char* to = static_cast<char*>(block->data());
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  if (spans_.recording()) {
    RETURN_IF_ERROR(spans_.Begin(DeviceQueue::kCopyIn, "copy in", std::string(what), static_cast<int64_t>(bytes)));
  }
  RETURN_IF_ERROR(runtime_->CopyIn(DeviceQueue::kCopyIn, device, block->data(), bytes));
  RETURN_IF_ERROR(spans_.End(DeviceQueue::kCopyIn));
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, runtime_->NewEvent());
  RETURN_IF_ERROR(runtime_->Record(DeviceQueue::kCopyIn, event.get()));
  on_their_way_.push_back({.event = std::move(event), .block = std::move(block)});
  brought_ = true;
  bytes_in_ += static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Arrival>> DeviceTransfers::Out(absl::Span<const Piece> pieces, std::string_view what) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  auto arrival = std::make_shared<Arrival>();
  if (bytes == 0) return arrival;
  arrival->runtime_ = runtime_;
  ASSIGN_OR_RETURN(arrival->block_, memory_->AllocatePinned(bytes));
  // What was brought and never computed with may be taken, too.
  RETURN_IF_ERROR(BeforeCompute());
  std::unique_ptr<DeviceEvent> written;
  RETURN_IF_ERROR(Order(DeviceQueue::kCompute, DeviceQueue::kCopyOut, &written));
  ASSIGN_OR_RETURN(arrival->event_, runtime_->NewEvent());
  char* to = static_cast<char*>(arrival->block_->data());
  if (spans_.recording()) {
    RETURN_IF_ERROR(spans_.Begin(DeviceQueue::kCopyOut, "copy out", std::string(what), static_cast<int64_t>(bytes)));
  }
  absl::Status queued = absl::OkStatus();
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0 && queued.ok()) queued = runtime_->CopyOut(DeviceQueue::kCopyOut, to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  RETURN_IF_ERROR(queued);
  RETURN_IF_ERROR(spans_.End(DeviceQueue::kCopyOut));
  RETURN_IF_ERROR(runtime_->Record(DeviceQueue::kCopyOut, arrival->event_.get()));
  taken_ = true;
  bytes_out_ += static_cast<int64_t>(bytes);
  return arrival;
}

absl::Status DeviceTransfers::BeforeCompute() {
  if (!brought_) return absl::OkStatus();
  RETURN_IF_ERROR(Order(DeviceQueue::kCopyIn, DeviceQueue::kCompute, &in_));
  brought_ = false;
  return absl::OkStatus();
}

absl::Status DeviceTransfers::HoldForCopiesOut() {
  if (!taken_) return absl::OkStatus();
  RETURN_IF_ERROR(Order(DeviceQueue::kCopyOut, DeviceQueue::kCompute, &out_));
  taken_ = false;
  return absl::OkStatus();
}

}  // namespace weir
