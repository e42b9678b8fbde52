// The first error of a run that several threads work on. Thread-safe.
#ifndef WEIR_FRAMEWORK_RUNTIME_FIRST_ERROR_H_
#define WEIR_FRAMEWORK_RUNTIME_FIRST_ERROR_H_

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/mutex.h"

namespace weir {

class FirstError {
 public:
  // Begins a run, in which nothing has failed.
  void Reset() {
    failed_.store(false, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    status_ = absl::OkStatus();
  }
  // Keeps the first error; does nothing if `status` is OK.
  void Add(absl::Status status) {
    if (status.ok()) return;
    failed_.store(true, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = std::move(status);
  }
  // Returns true after an error, perhaps late: threads that still see false run one op more.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  absl::Status status() const {
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  // Read before every op, without the lock; the status behind the lock is what counts.
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_FIRST_ERROR_H_
