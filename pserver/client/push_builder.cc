#include "pserver/client/push_builder.h"

#include <cstring>
#include <utility>

#include "framework/wire/checksum.h"
#include "framework/wire/transfer.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Zeros between the end of a tensor and the next multiple of 64, so that no stale bytes leave the process.
void ClearTail(char* data, size_t bytes) { std::memset(data + bytes, 0, AlignUp(bytes) - bytes); }

}  // namespace

void PushBuilder::Begin() {
  MutexLock lock(&mu_);
  next_part_ = 0;
  small_ = Part();
}

void PushBuilder::SendPart(v1::PushRequest header, std::vector<v1::PushItem> items, const WireBuffer& buffer,
                           size_t used, bool last) {
  for (v1::PushItem& item : items) *header.add_items() = std::move(item);
  {
    MutexLock lock(&mu_);
    header.set_part(next_part_++);
    if (last) header.set_part_count(next_part_);
  }
  Slices payload;
  if (used > 0) payload.push_back(buffer.Piece(0, used));
  if (checksums_) header.set_checksum(Checksum(payload));
  send_(std::move(header), std::move(payload));
}

void PushBuilder::Add(std::vector<PushTensor> tensors) {
  size_t total = 0;
  for (const PushTensor& tensor : tensors) total += AlignUp(tensor.bytes);
  if (total == 0) return;
  CHECK_LT(total, kMaxMessageBytes);
  if (total >= kGatherBytes) {
    const WireBuffer buffer = pool_->Get(total);
    std::vector<v1::PushItem> items;
    size_t at = 0;
    for (PushTensor& tensor : tensors) {
      tensor.item.set_offset(static_cast<int64_t>(at));
      tensor.write(buffer.data + at);
      ClearTail(buffer.data + at, tensor.bytes);
      at += AlignUp(tensor.bytes);
      items.push_back(std::move(tensor.item));
    }
    return SendPart({}, std::move(items), buffer, total, /*last=*/false);
  }
  Part full;
  {
    MutexLock lock(&mu_);
    if (small_.used + total > kGatherBytes) {
      full = std::move(small_);
      small_ = Part();
    }
    if (small_.buffer.data == nullptr) small_.buffer = pool_->Get(kGatherBytes);
    for (PushTensor& tensor : tensors) {
      tensor.item.set_offset(static_cast<int64_t>(small_.used));
      tensor.write(small_.buffer.data + small_.used);
      ClearTail(small_.buffer.data + small_.used, tensor.bytes);
      small_.used += AlignUp(tensor.bytes);
      small_.items.push_back(std::move(tensor.item));
    }
  }
  if (full.used > 0) SendPart({}, std::move(full.items), full.buffer, full.used, /*last=*/false);
}

void PushBuilder::Finish(v1::PushRequest header) {
  Part rest;
  {
    MutexLock lock(&mu_);
    rest = std::move(small_);
    small_ = Part();
  }
  SendPart(std::move(header), std::move(rest.items), rest.buffer, rest.used, /*last=*/true);
}

}  // namespace weir
