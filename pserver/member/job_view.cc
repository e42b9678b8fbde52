#include "pserver/member/job_view.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace weir {

JobView::JobView(int trainers, std::function<void()> news) : trainers_(trainers), news_(std::move(news)) {}

absl::Status JobView::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

bool JobView::SetFailure(const absl::Status& status) {
  if (!failure_.ok()) return false;
  failure_ = status;
  relay_ = true;
  changed_.SignalAll();
  return true;
}

void JobView::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (!SetFailure(status)) return;
  }
  news_();
}

void JobView::Refused(const absl::Status& status, bool expelled) {
  {
    MutexLock lock(&mu_);
    if (done_) return;
    expelled_ |= expelled;
    if (!SetFailure(status)) return;
  }
  news_();
}

std::optional<absl::Status> JobView::FailUnlessExpelled(const absl::Status& status) {
  absl::Status standing;
  {
    MutexLock lock(&mu_);
    if (expelled_) return std::nullopt;
    if (!SetFailure(status)) return failure_;
    standing = failure_;
  }
  news_();
  return standing;
}

absl::Status JobView::AwaitFailure(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    for (int i = 0; i < 100 && failure_.ok(); ++i) changed_.WaitWithTimeout(&mu_, absl::Milliseconds(10));
  }
  Fail(status);
  return failure();
}

bool JobView::expelled() const {
  MutexLock lock(&mu_);
  return expelled_;
}

void JobView::SetDone() {
  MutexLock lock(&mu_);
  done_ = true;
}

bool JobView::done() const {
  MutexLock lock(&mu_);
  return done_;
}

bool JobView::SleepUntil(std::chrono::steady_clock::time_point until) {
  using SteadyClock = std::chrono::steady_clock;
  MutexLock lock(&mu_);
  for (SteadyClock::time_point now = SteadyClock::now(); !closed_ && !relay_ && now < until; now = SteadyClock::now()) {
    changed_.WaitWithTimeout(&mu_, absl::FromChrono(until - now));
  }
  return !closed_;
}

void JobView::RelayBegins() {
  MutexLock lock(&mu_);
  relay_ = false;
}

void JobView::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  changed_.SignalAll();
}

void JobView::SetAnyAwaitsFiles(bool any) {
  if (any_awaits_files_.exchange(any) != any) news_();
}

void JobView::RequestStop() {
  if (!stop_requested_.exchange(true)) news_();
}

void JobView::SawVersion(int64_t version) {
  {
    MutexLock lock(&mu_);
    if (version <= version_) return;
    version_ = version;
  }
  news_();
}

int64_t JobView::version() const {
  MutexLock lock(&mu_);
  return version_;
}

void JobView::SetChief(int trainer) {
  if (IsTrainer(trainer) && chief_.exchange(trainer) != trainer) news_();
}

bool JobView::SetDead(int trainer) {
  if (!IsTrainer(trainer)) return false;
  MutexLock lock(&mu_);
  return dead_.insert(trainer).second;
}

}  // namespace weir
