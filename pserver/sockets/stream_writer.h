// Records that wait for a stream, which has one write under way at a time.
#ifndef WEIR_PSERVER_SOCKETS_STREAM_WRITER_H_
#define WEIR_PSERVER_SOCKETS_STREAM_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "pserver/sockets/stream_records.h"

namespace weir {

// Thread-safe. What comes while a write is under way is the next batch, up to kBatchBytes.
class StreamWriter {
 public:
  // `write` starts a write of a batch. It returns true if the write has ended, else that is told to Written. It is
  // called without a lock, by one thread at a time, and not after Close has returned.
  explicit StreamWriter(std::function<bool(Slices batch)> write) : write_(std::move(write)) {}

  // Adds a record without starting a write. With `joins_next` the next record goes into the same batch, whatever their
  // sizes. Returns false, and does nothing, if the writer is closed. Copies parts of the payload that have no owner.
  bool Keep(Record record, bool joins_next);
  // Lets all that waits be written: now, or when the write under way has ended.
  void Write();
  // Keep and Write.
  bool Add(Record record);
  // Forgets a request that no batch has taken yet.
  void Drop(uint64_t call);
  // Returns the number of records that no batch has taken yet.
  size_t waiting() const;
  // Waits until nothing waits and no write is under way, or the writer is closed; at most until `until`.
  void AwaitIdle(absl::Time until);
  // The write that was under way has ended.
  void Written();
  // Drops what waits. Requires: not called by `write`.
  void Close();

 private:
  struct Waiting {
    Record record;
    bool joins_next = false;
  };

  // Starts a write of what is due, if there is anything and none is under way.
  void WriteDue();
  // Takes the next batch. Requires: something is due.
  Slices NextBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<bool(Slices)> write_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  size_t due_ ABSL_GUARDED_BY(mu_) = 0;  // the first of waiting_, which Write has been called for
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // Calls of `write` that run: gRPC may have ended one write, and another thread started the next, before the call for
  // the first returns.
  int starting_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_STREAM_WRITER_H_
