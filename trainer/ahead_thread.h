// Work that runs beside a caller's: what the next step needs, while this one computes.
#ifndef WEIR_TRAINER_AHEAD_THREAD_H_
#define WEIR_TRAINER_AHEAD_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "framework/base/mutex.h"

namespace weir {

// A thread of its own (named "weir-prefetch") for one piece of work at a time. All calls come from one thread. What the
// work has written is seen by whoever has called Finish, and what the caller has written before Start by the work.
class AheadThread {
 public:
  // `cancel` makes work that is under way, and any later, end soon. It runs on the caller's thread.
  explicit AheadThread(std::function<void()> cancel);
  // Stop.
  ~AheadThread();
  AheadThread(const AheadThread&) = delete;
  AheadThread& operator=(const AheadThread&) = delete;

  // The work before it has been finished.
  void Start(std::function<absl::Status()> work);
  // Waits until the work has ended and returns what it returned. Its own waits have deadlines. `waited` (may be null):
  // it had not ended when this was called.
  absl::Status Finish(bool* waited = nullptr);
  // Started and not finished.
  bool busy() const { return busy_; }
  // Cancels work that is under way and joins the thread. Nothing is started afterwards.
  void Stop();

 private:
  void Run();

  const std::function<void()> cancel_;
  bool busy_ = false;  // of the caller
  Mutex mu_;
  CondVar changed_;
  std::function<absl::Status()> work_ ABSL_GUARDED_BY(mu_);  // empty: none, or its end is in result_
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_AHEAD_THREAD_H_
