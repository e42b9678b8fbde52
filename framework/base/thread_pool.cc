#include "framework/base/thread_pool.h"
#include "framework/base/exhausted.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace weir {

ThreadPool::ThreadPool(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) {
    workers_.push_back(StartThread(name, [this] { Work(); }));
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    ready_.SignalAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Schedule(std::function<void()> fn) {
  if (workers_.empty()) {
    fn();
    return;
  }
  MutexLock lock(&mu_);
  queue_.push_back(std::move(fn));
  ready_.Signal();
}

void ThreadPool::Work() {
  while (true) {
    std::function<void()> fn;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stop_) ready_.Wait(&mu_);
      if (queue_.empty()) return;
      fn = std::move(queue_.front());
      queue_.pop_front();
    }
    fn();
  }
}

bool ThreadPool::TryRunOne() {
  std::function<void()> fn;
  {
    MutexLock lock(&mu_);
    if (queue_.empty()) return false;
    fn = std::move(queue_.front());
    queue_.pop_front();
  }
  fn();
  return true;
}

void ThreadPool::ParallelFor(int64_t n, const std::function<void(int64_t)>& fn) {
  if (n <= 0) return;
  if (n == 1 || workers_.empty()) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  // Helpers may start after the loop has ended, so its state lives as long as the last helper.
  struct Loop {
    std::atomic<int64_t> next{0};
    Mutex mu;
    CondVar finished;
    int64_t done ABSL_GUARDED_BY(mu) = 0;
  };
  auto loop = std::make_shared<Loop>();
  auto run = [loop, n](const std::function<void(int64_t)>* body) {
    int64_t mine = 0;
    for (int64_t i = loop->next.fetch_add(1); i < n; i = loop->next.fetch_add(1)) {
      (*body)(i);
      ++mine;
    }
    if (mine == 0) return;
    MutexLock lock(&loop->mu);
    loop->done += mine;
    if (loop->done == n) loop->finished.SignalAll();
  };
  const int64_t helpers = std::min<int64_t>(n - 1, threads());
  for (int64_t i = 0; i < helpers; ++i) Schedule([run, body = &fn] { run(body); });
  run(&fn);
  MutexLock lock(&loop->mu);
  while (loop->done < n) loop->finished.Wait(&loop->mu);
}

}  // namespace weir
