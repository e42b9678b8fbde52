// Thread pool, one per process. Library calls run single-threaded inside its tasks, so that no thread count changes a
// bit.
#ifndef WEIR_FRAMEWORK_BASE_THREAD_POOL_H_
#define WEIR_FRAMEWORK_BASE_THREAD_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

class ThreadPool {
 public:
  // Starts `threads` workers besides callers of ParallelFor; 0 is allowed: everything then runs on the calling thread.
  ThreadPool(const std::string& name, int threads);
  // Runs all queued tasks, then joins the workers.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs fn on a worker (on the calling thread if there is none). Tasks must not block on other tasks.
  void Schedule(std::function<void()> fn);

  // Runs fn(i) for i in [0, n) on the workers and the calling thread, in no order; returns when all are done. May be
  // called from inside a task: the caller works too, so it cannot deadlock.
  void ParallelFor(int64_t n, const std::function<void(int64_t)>& fn);

  // Runs one queued task on the calling thread; returns false if none is queued. For a thread that waits for tasks
  // anyway.
  bool TryRunOne();

  int threads() const { return static_cast<int>(workers_.size()); }

 private:
  void Work();

  Mutex mu_;
  CondVar ready_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> workers_;  // constant after construction
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_THREAD_POOL_H_
