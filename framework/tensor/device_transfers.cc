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
  OnItsWay copy;
  ASSIGN_OR_RETURN(copy.event, runtime_->NewEvent());
  size_t unpinned = 0;
  for (const Piece& piece : pieces) unpinned += piece.pinned == nullptr ? piece.bytes : 0;
  if (unpinned > 0) {
    ASSIGN_OR_RETURN(copy.block, memory_->AllocatePinned(unpinned));
  }
  if (spans_.recording()) {
    RETURN_IF_ERROR(spans_.Begin(DeviceQueue::kCopyIn, "copy in", std::string(what), static_cast<int64_t>(bytes)));
  }
  char* staged = unpinned > 0 ? static_cast<char*>(copy.block->data()) : nullptr;
  char* to = static_cast<char*>(device);
  absl::Status queued = absl::OkStatus();
  for (size_t i = 0; i < pieces.size() && queued.ok();) {
    const void* from = staged;
    size_t n = 0;
    if (pieces[i].pinned != nullptr) {
      from = pieces[i].data;
      n = pieces[i].bytes;
      copy.pinned.push_back(pieces[i].pinned);
      ++i;
    } else {
      // Copy consecutive pieces that are not pinned together.
      for (; i < pieces.size() && pieces[i].pinned == nullptr; ++i) {
        if (pieces[i].bytes > 0) std::memcpy(staged, pieces[i].data, pieces[i].bytes);
        staged += pieces[i].bytes;
        n += pieces[i].bytes;
      }
    }
    if (n > 0) queued = runtime_->CopyIn(DeviceQueue::kCopyIn, to, from, n);
    to += n;
  }
  // Keep the memory until the copies that are already in the queue have read it, even if a later one failed.
  const absl::Status recorded = runtime_->Record(DeviceQueue::kCopyIn, copy.event.get());
  if (recorded.ok()) on_their_way_.push_back(std::move(copy));
  RETURN_IF_ERROR(queued);
  RETURN_IF_ERROR(recorded);
  RETURN_IF_ERROR(spans_.End(DeviceQueue::kCopyIn));
  brought_ = true;
  bytes_in_ += static_cast<int64_t>(bytes);
  bytes_staged_ += static_cast<int64_t>(unpinned);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Arrival>> DeviceTransfers::Out(absl::Span<const Piece> pieces, std::string_view what) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  auto arrival = std::make_shared<Arrival>();
  if (bytes == 0) return arrival;
  arrival->runtime_ = runtime_;
  ASSIGN_OR_RETURN(arrival->block_, memory_->AllocatePinned(bytes));
  // Wait for copies in: a piece may be data that was copied in and that no kernel has waited for yet.
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
