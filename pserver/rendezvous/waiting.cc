#include "pserver/rendezvous/waiting.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "glog/logging.h"

namespace weir {
namespace {

std::string Seconds(absl::Duration of) { return absl::FormatDuration(absl::Trunc(of, absl::Milliseconds(100))); }

}  // namespace

Waiting::Waiting(absl::Duration slow_warning, absl::Duration deadline)
    : slow_warning_(slow_warning),
      limit_(deadline),
      begin_(Clock::Real()->Now()),
      next_warning_(begin_ + slow_warning) {}

absl::Status Waiting::Check(const std::function<std::string()>& what_for, const Cancellation& cancellation) {
  const absl::Time now = Clock::Real()->Now();
  if (cancellation.cancelled()) {
    return absl::CancelledError(
        absl::StrCat("ended by a signal, after ", Seconds(now - begin_), " of waiting ", what_for()));
  }
  if (now >= begin_ + limit_) {
    return absl::DeadlineExceededError(
        absl::StrCat("waited for ", Seconds(limit_), " (deadlines.connect_deadline_s) ", what_for()));
  }
  if (now >= next_warning_) {
    LOG(WARNING) << "has waited for " << Seconds(now - begin_) << " " << what_for();
    next_warning_ = now + slow_warning_;
  }
  return absl::OkStatus();
}

absl::Duration Waiting::Next() const {
  return std::max(absl::ZeroDuration(), std::min(next_warning_, begin_ + limit_) - Clock::Real()->Now());
}

}  // namespace weir
