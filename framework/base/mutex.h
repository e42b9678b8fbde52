// The one lock of the project: Mutex, MutexLock, CondVar.
//
// absl::Mutex in normal builds, std::mutex under ThreadSanitizer, which cannot see into the uninstrumented Abseil of the
// system. Annotated for clang's -Wthread-safety in both.
#ifndef WEIR_FRAMEWORK_BASE_MUTEX_H_
#define WEIR_FRAMEWORK_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#ifdef WEIR_TSAN
#include <chrono>
#include <condition_variable>
#include <mutex>
#else
#include "absl/synchronization/mutex.h"
#endif

namespace weir {

class CondVar;

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

#ifdef WEIR_TSAN
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }
#else
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.Lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.TryLock(); }
#endif
  // Tells the lock analysis, inside a lambda, what it cannot see: whoever calls it holds the lock. Checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
#ifdef WEIR_TSAN
  std::mutex mu_;
#else
  absl::Mutex mu_;
#endif
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

// Waits in real time. Code that must run under a fake clock waits through Clock (framework/base/clock.h).
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

#ifdef WEIR_TSAN
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // True if it timed out.
  bool WaitWithTimeout(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // TSan does not intercept the clock-wait that steady_clock deadlines use; system_clock it does.
    const bool timed_out = cv_.wait_until(lock, std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout)) ==
                           std::cv_status::timeout;
    lock.release();
    return timed_out;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }
#else
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { cv_.Wait(&mu->mu_); }
  // True if it timed out.
  bool WaitWithTimeout(Mutex* mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return cv_.WaitWithTimeout(&mu->mu_, timeout);
  }
  void Signal() { cv_.Signal(); }
  void SignalAll() { cv_.SignalAll(); }
#endif

 private:
#ifdef WEIR_TSAN
  std::condition_variable cv_;
#else
  absl::CondVar cv_;
#endif
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_MUTEX_H_
