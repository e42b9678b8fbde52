// Time for everything that has a deadline, so that tests can turn the hands themselves. Thread-safe.
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
  // Never goes back within a process.
  virtual absl::Time Now() = 0;
  // The machine's clock; lives for ever.
  static Clock* Real();
};

// Stands still until told. For single-threaded tests of leases and deadlines.
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
