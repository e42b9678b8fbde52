// Source of time for code with deadlines; tests replace it by a clock that they advance. Thread-safe.
#ifndef WEIR_FRAMEWORK_BASE_CLOCK_H_
#define WEIR_FRAMEWORK_BASE_CLOCK_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"

namespace weir {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the current time, which never goes back within a process.
  virtual absl::Time Now() = 0;
  // Returns the machine's clock, which is never destroyed.
  static Clock* Real();
};

// Clock that moves only by Advance. For single-threaded tests of leases and deadlines.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'000'000'000)) : now_(start) {}
  absl::Time Now() override;
  void Advance(absl::Duration d);

 private:
  Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_CLOCK_H_
