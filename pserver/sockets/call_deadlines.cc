#include "pserver/sockets/call_deadlines.h"

#include <algorithm>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"

namespace weir {

CallDeadlines::CallDeadlines() {
  thread_ = StartThread("weir-deadlines", [this] { Watch(); });
}

CallDeadlines::~CallDeadlines() {
  {
    MutexLock lock(&mu_);
    stops_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

uint64_t CallDeadlines::Add(absl::Time deadline, Expire expire) {
  MutexLock lock(&mu_);
  calls_[++last_] = {deadline, std::move(expire)};
  if (deadline < looks_at_) {
    looks_at_ = deadline;
    changed_.SignalAll();
  }
  return last_;
}

void CallDeadlines::Remove(uint64_t number) {
  MutexLock lock(&mu_);
  calls_.erase(number);
}

void CallDeadlines::Watch() {
  while (true) {
    std::vector<Expire> late;
    {
      MutexLock lock(&mu_);
      if (stops_) return;
      const absl::Time now = Clock::Real()->Now();
      if (now < looks_at_) {
        if (looks_at_ == absl::InfiniteFuture()) {
          changed_.Wait(&mu_);
        } else {
          changed_.WaitWithTimeout(&mu_, looks_at_ - now);
        }
        continue;
      }
      looks_at_ = absl::InfiniteFuture();
      for (auto call = calls_.begin(); call != calls_.end();) {
        if (call->second.first <= now) {
          late.push_back(std::move(call->second.second));
          call = calls_.erase(call);
        } else {
          looks_at_ = std::min(looks_at_, call->second.first);
          ++call;
        }
      }
    }
    for (const Expire& expire : late) expire();
  }
}

}  // namespace weir
