#include "pserver/sockets/stream_writer.h"

#include <string>
#include <utility>

#include "framework/base/clock.h"

namespace weir {

bool StreamWriter::Keep(Record record, bool joins_next) {
  // The caller keeps these until it returns, and the record may wait longer.
  for (Slice& slice : record.payload) {
    if (slice.owner == nullptr) slice = Slice::Own(std::string(slice.data, slice.size));
  }
  MutexLock lock(&mu_);
  if (closed_) return false;
  waiting_.push_back({std::move(record), joins_next});
  return true;
}

bool StreamWriter::Add(Record record) {
  if (!Keep(std::move(record), /*joins_next=*/false)) return false;
  Write();
  return true;
}

void StreamWriter::Written() {
  {
    MutexLock lock(&mu_);
    writing_ = false;
    changed_.SignalAll();
  }
  WriteDue();
}

void StreamWriter::Write() {
  {
    MutexLock lock(&mu_);
    due_ = waiting_.size();
  }
  WriteDue();
}

Slices StreamWriter::NextBatch() {
  Slices batch;
  size_t bytes = 0, records = 0;
  bool joined = false;
  do {
    ++records;
    bytes += waiting_.front().record.bytes();
    joined = waiting_.front().joins_next;
    AppendRecord(waiting_.front().record, &batch);
    waiting_.pop_front();
    --due_;
  } while (due_ > 0 && records < kMostRecords &&
           bytes + waiting_.front().record.bytes() <= (joined ? kMaxMessageBytes : kBatchBytes));
  return batch;
}

void StreamWriter::WriteDue() {
  bool ended = false;
  do {
    Slices batch;
    {
      MutexLock lock(&mu_);
      if (writing_ || closed_ || due_ == 0) return;
      batch = NextBatch();
      writing_ = true;
      ++starting_;
    }
    ended = write_(std::move(batch));
    MutexLock lock(&mu_);
    --starting_;
    if (ended) writing_ = false;
    changed_.SignalAll();
  } while (ended);
}

void StreamWriter::Drop(uint64_t call) {
  Waiting dropped;  // destroyed without the lock: owners of memory may take locks of their own
  MutexLock lock(&mu_);
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->record.head.kind != RecordHead::kRequest || it->record.head.call != call) continue;
    dropped = std::move(*it);
    if (static_cast<size_t>(it - waiting_.begin()) < due_) --due_;
    waiting_.erase(it);
    return;
  }
}

size_t StreamWriter::waiting() const {
  MutexLock lock(&mu_);
  return waiting_.size();
}

void StreamWriter::AwaitIdle(absl::Time until) {
  MutexLock lock(&mu_);
  while (!closed_ && (writing_ || !waiting_.empty())) {
    const absl::Duration left = until - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitWithTimeout(&mu_, left);
  }
}

void StreamWriter::Close() {
  std::deque<Waiting> dropped;
  MutexLock lock(&mu_);
  closed_ = true;
  dropped.swap(waiting_);
  due_ = 0;
  changed_.SignalAll();
  while (starting_ > 0) changed_.Wait(&mu_);
}

}  // namespace weir
