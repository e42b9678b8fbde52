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

void PushBuilder::Put(PushTensor tensor, Part* part) {
  char* const to = part->buffer.data + part->packed.bytes();
  tensor.write(to, &tensor.item);
  ClearTail(to, tensor.bytes);
  part->packed.Add(std::move(tensor.item), tensor.bytes);
}

void PushBuilder::SendPart(v1::PushRequest header, Part part, bool last) {
  int number = 0;
  {
    MutexLock lock(&mu_);
    number = next_part_++;
  }
  Slices payload;
  if (part.packed.bytes() > 0) payload.push_back(part.buffer.Piece(0, part.packed.bytes()));
  std::move(part.packed).FillHeader(number, last, &header);
  if (checksums_) header.set_checksum(Checksum(payload));
  send_(std::move(header), std::move(payload));
}

void PushBuilder::Add(std::vector<PushTensor> tensors) {
  size_t total = 0;
  for (const PushTensor& tensor : tensors) total += AlignUp(tensor.bytes);
  if (total == 0) return;
  CHECK_LT(total, kMaxMessageBytes);
  if (PushPart::LeavesAtOnce(total)) {
    Part large = {pool_->Get(total), {}};
    for (PushTensor& tensor : tensors) Put(std::move(tensor), &large);
    return SendPart({}, std::move(large), /*last=*/false);
  }
  Part full;
  {
    MutexLock lock(&mu_);
    if (!small_.packed.HasRoomFor(total)) {
      full = std::move(small_);
      small_ = Part();
    }
    if (small_.buffer.data == nullptr) small_.buffer = pool_->Get(kGatherBytes);
    for (PushTensor& tensor : tensors) Put(std::move(tensor), &small_);
  }
  if (full.packed.bytes() > 0) SendPart({}, std::move(full), /*last=*/false);
}

size_t PushBuilder::pending() {
  MutexLock lock(&mu_);
  return small_.packed.bytes();
}

void PushBuilder::Finish(v1::PushRequest header) {
  Part rest;
  {
    MutexLock lock(&mu_);
    rest = std::move(small_);
    small_ = Part();
  }
  SendPart(std::move(header), std::move(rest), /*last=*/true);
}

}  // namespace weir
