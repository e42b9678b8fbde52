#include "trainer/loop/ahead_thread.h"

#include <utility>

#include "framework/base/exhausted.h"
#include "framework/profile/thread_names.h"
#include "glog/logging.h"

namespace weir {

AheadThread::AheadThread(std::function<void()> cancel) : cancel_(std::move(cancel)) {
  thread_ = StartThread(kAheadThread, [this] { Run(); });
}

AheadThread::~AheadThread() { Stop(); }

void AheadThread::Run() {
  while (true) {
    std::function<absl::Status()> work;
    {
      MutexLock lock(&mu_);
      // The owner ends it.
      while (!stop_ && work_ == nullptr) changed_.Wait(&mu_);
      if (stop_) return;
      work = work_;
    }
    const absl::Status result = work();
    MutexLock lock(&mu_);
    work_ = nullptr;
    result_ = result;
    changed_.SignalAll();
  }
}

void AheadThread::Start(std::function<absl::Status()> work) {
  CHECK(!busy_ && thread_.joinable());
  busy_ = true;
  MutexLock lock(&mu_);
  work_ = std::move(work);
  changed_.SignalAll();
}

absl::Status AheadThread::Finish(bool* waited) {
  CHECK(busy_);
  busy_ = false;
  MutexLock lock(&mu_);
  if (waited != nullptr) *waited = work_ != nullptr;
  while (work_ != nullptr) changed_.Wait(&mu_);
  return result_;
}

void AheadThread::Stop() {
  if (!thread_.joinable()) return;
  cancel_();
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

}  // namespace weir
