// Thread that prepares the next step while the caller computes this one.
#ifndef WEIR_TRAINER_LOOP_AHEAD_THREAD_H_
#define WEIR_TRAINER_LOOP_AHEAD_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "framework/base/mutex.h"

namespace weir {

// Runs one piece of work at a time on a thread named "weir-prefetch". All calls come from one thread. Writes of the
// work are visible to the caller after Finish, and writes of the caller before Start to the work.
class AheadThread {
 public:
  // `cancel` makes work that is under way, and any later work, end soon. It runs on the caller's thread.
  explicit AheadThread(std::function<void()> cancel);
  // Calls Stop.
  ~AheadThread();
  AheadThread(const AheadThread&) = delete;
  AheadThread& operator=(const AheadThread&) = delete;

  // Starts work. Requires: !busy(), and not after Stop.
  void Start(std::function<absl::Status()> work);
  // Waits until the work has ended and returns its result. Requires: busy(). Has no deadline of its own; the waits of
  // the work have. Sets *waited (may be null) to whether the work was still running.
  absl::Status Finish(bool* waited = nullptr);
  // Returns true between Start and Finish.
  bool busy() const { return busy_; }
  // Cancels work that is under way and joins the thread.
  void Stop();

 private:
  void Run();

  const std::function<void()> cancel_;
  bool busy_ = false;  // used by the caller
  Mutex mu_;
  CondVar changed_;
  std::function<absl::Status()> work_ ABSL_GUARDED_BY(mu_);  // empty: no work, or its end is in result_
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_AHEAD_THREAD_H_
