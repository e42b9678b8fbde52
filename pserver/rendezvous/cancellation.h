// Ends waits of other threads.
#ifndef WEIR_PSERVER_RENDEZVOUS_CANCELLATION_H_
#define WEIR_PSERVER_RENDEZVOUS_CANCELLATION_H_

#include "absl/time/time.h"

namespace weir {

// Thread-safe. One Cancel ends all waits, present and later ones.
class Cancellation {
 public:
  // Exits the process if the system gives no descriptor.
  Cancellation();
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool cancelled() const { return WaitFor(absl::ZeroDuration()); }
  // Returns true as soon as it is cancelled, false after `limit`.
  bool WaitFor(absl::Duration limit) const;
  // Readable, for poll(2), once it is cancelled.
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// Returns the milliseconds for poll(2), rounded up: at least 0, at most a day.
int PollTimeout(absl::Duration wait);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_CANCELLATION_H_
