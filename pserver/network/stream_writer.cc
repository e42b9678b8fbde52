#include "pserver/network/stream_writer.h"

#include <string>

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
  }
  Write();
}

void StreamWriter::Write() {
  Slices batch;
  {
    MutexLock lock(&mu_);
    if (writing_ || closed_ || waiting_.empty()) return;
    size_t bytes = 0;
    bool joined = false;
    do {
      bytes += waiting_.front().record.bytes();
      joined = waiting_.front().joins_next;
      AppendRecord(waiting_.front().record, &batch);
      waiting_.pop_front();
    } while (!waiting_.empty() && bytes + waiting_.front().record.bytes() <= (joined ? kMaxMessageBytes : kBatchBytes));
    writing_ = true;
    starting_ = true;
  }
  write_(std::move(batch));
  MutexLock lock(&mu_);
  starting_ = false;
  started_.SignalAll();
}

void StreamWriter::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  waiting_.clear();
  while (starting_) started_.Wait(&mu_);
}

}  // namespace weir
