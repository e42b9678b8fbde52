#include "framework/base/clock.h"

#include <chrono>

namespace weir {
namespace {

class RealClock : public Clock {
 public:
  // Returns the wall time at start plus the steady time since: a step of the wall clock must not expire leases.
  absl::Time Now() override { return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_); }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* clock = new RealClock;
  return clock;
}

absl::Time FakeClock::Now() {
  MutexLock lock(&mu_);
  return now_;
}

void FakeClock::Advance(absl::Duration d) {
  MutexLock lock(&mu_);
  now_ += d;
}

}  // namespace weir
