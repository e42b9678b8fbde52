// Locks of the project: Mutex, MutexLock, CondVar. Annotated for clang's -Wthread-safety.
//
// They wrap the standard library's locks instead of Abseil's: absl::CondVar of Debian 12 sleeps until a time of the
// wall clock, so a wait of a second lasts an hour if the clock is set back by an hour. These waits use the monotonic
// clock. ThreadSanitizer also sees these locks, but not those inside the uninstrumented Abseil of the system.
#ifndef WEIR_FRAMEWORK_BASE_MUTEX_H_
#define WEIR_FRAMEWORK_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace weir {

class CondVar;

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }
  // Tells the lock analysis, inside a lambda, that the caller holds the lock. Has no effect at run time.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// Waits in real time, by the monotonic clock. Wake-ups may be spurious: wait in a loop. Code that must run under a fake
// clock waits through Clock (framework/base/clock.h).
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns true if it timed out.
  bool WaitWithTimeout(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // wait_for would add an infinite timeout to the present time.
    const auto until =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
    const bool timed_out = cv_.wait_until(lock, until) == std::cv_status::timeout;
    lock.release();
    return timed_out;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_MUTEX_H_
