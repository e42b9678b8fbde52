// Deadlines of calls through streams (stream_client.h), which gRPC does not watch: its call is the stream.
#ifndef WEIR_PSERVER_SOCKETS_CALL_DEADLINES_H_
#define WEIR_PSERVER_SOCKETS_CALL_DEADLINES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"

namespace weir {

// One thread for all streams of a transport. It sleeps until the earliest deadline of the calls that there were when it
// last looked. Thread-safe.
class CallDeadlines {
 public:
  // Gives a call up: called on the thread of this object, once, unless Remove came first.
  using Expire = std::function<void()>;

  CallDeadlines();
  // No `expire` runs after it has returned.
  ~CallDeadlines();
  CallDeadlines(const CallDeadlines&) = delete;
  CallDeadlines& operator=(const CallDeadlines&) = delete;

  // Returns a number for Remove.
  uint64_t Add(absl::Time deadline, Expire expire);
  void Remove(uint64_t number);

 private:
  void Watch();

  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, std::pair<absl::Time, Expire>> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time looks_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_CALL_DEADLINES_H_
