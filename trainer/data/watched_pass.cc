#include "trainer/data/watched_pass.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "glog/logging.h"

namespace weir {

namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
// A pass that is alive sees within this that nobody waits for it.
constexpr absl::Duration kLeavePass = absl::Seconds(1);

// Shared with the thread, which may outlive the call.
struct State {
  std::atomic<int64_t> signs{0};
  std::atomic<bool> cancelled{false};
  Mutex mu;
  CondVar changed;
  std::optional<absl::StatusOr<std::string>> result ABSL_GUARDED_BY(mu);

  // False after `timeout` without a result.
  bool Wait(absl::Duration timeout) {
    const absl::Time end = Clock::Real()->Now() + timeout;
    MutexLock lock(&mu);
    while (!result.has_value()) {
      const absl::Duration left = end - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return false;
      changed.WaitWithTimeout(&mu, left);
    }
    return true;
  }
};

// Waits for the result. Returns OK once there is one, else the reason to wait no longer.
absl::Status WaitForResult(const PassWatch& watch, State& state) {
  if (watch.keep_waiting) {
    if (absl::Status wanted = watch.keep_waiting(); !wanted.ok()) return wanted;
  }
  int64_t seen = state.signs;
  absl::Time since = Clock::Real()->Now();
  absl::Time warned = since;
  while (!state.Wait(std::min({kLook, watch.slow_warning, watch.progress_deadline}))) {
    if (watch.keep_waiting) {
      absl::Status wanted = watch.keep_waiting();
      if (!wanted.ok()) return wanted;
    }
    const absl::Time now = Clock::Real()->Now();
    if (const int64_t signs = state.signs; signs != seen) {
      seen = signs;
      since = warned = now;
      continue;
    }
    const std::string silence = absl::StrCat(watch.what, ": no line has been read for ",
                                             absl::FormatDuration(absl::Floor(now - since, absl::Milliseconds(100))));
    if (now - since >= watch.progress_deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(silence,
                       "; look at the disk or the network file system that holds the files, or raise "
                       "deadlines.progress_deadline_s"));
    }
    if (now - warned >= watch.slow_warning) {
      LOG(WARNING) << silence;
      warned = now;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> RunWatched(const PassWatch& watch, DataPass pass) {
  const auto state = std::make_shared<State>();
  std::thread thread = StartThread("weir-data-pass", [state, pass = std::move(pass)]() mutable {
    absl::StatusOr<std::string> result = pass([&state] {
      state->signs.fetch_add(1, std::memory_order_relaxed);
      return state->cancelled.load(std::memory_order_relaxed);
    });
    pass = nullptr;
    MutexLock lock(&state->mu);
    state->result = std::move(result);
    state->changed.SignalAll();
  });
  absl::Status end = WaitForResult(watch, *state);
  state->cancelled = true;
  if (!state->Wait(end.ok() ? absl::ZeroDuration() : kLeavePass)) {
    LOG(WARNING) << watch.what << ": reading has not ended within " << absl::FormatDuration(kLeavePass)
                 << " and is not waited for any longer";
    thread.detach();
    return end;
  }
  thread.join();
  if (!end.ok()) return end;
  MutexLock lock(&state->mu);
  return *std::move(state->result);
}

}  // namespace weir
