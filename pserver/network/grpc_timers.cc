#include "pserver/network/grpc_timers.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weir {
namespace {

// Largest backward step that is ignored. A slewed clock loses less than this between two calls, and a smaller step
// lengthens pauses by no more than itself.
constexpr int64_t kStepNs = 500'000'000;

int64_t NowNs(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

gpr_timespec GrpcDeadline(absl::Duration timeout) {
  const absl::Duration in_range = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(in_range), GPR_TIMESPAN));
}

bool WallClockHasGoneBack() {
  // Wall-clock time at which the monotonic clock began. Atomic: two threads may see the same step, or interleave by
  // less than a step, without harm.
  static std::atomic<int64_t> seen{INT64_MIN};
  static std::atomic<bool> gone_back{false};
  const int64_t monotonic = NowNs(CLOCK_MONOTONIC);
  const int64_t began = NowNs(CLOCK_REALTIME) - monotonic;
  const int64_t before = seen.exchange(began, std::memory_order_relaxed);
  if (before != INT64_MIN && began < before - kStepNs) gone_back.store(true, std::memory_order_relaxed);
  return gone_back.load(std::memory_order_relaxed);
}

}  // namespace weir
