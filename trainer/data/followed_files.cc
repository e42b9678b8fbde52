#include "trainer/data/followed_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weir {

FollowedFiles::FollowedFiles(LaneRange streams, int64_t next) {
  MutexLock lock(&mu_);
  next_ = next;
  for (int i = 0; i < streams.count; ++i) at_[streams.begin + i] = 0;
}

void FollowedFiles::Add(std::shared_ptr<const DataSet> files) {
  {
    MutexLock lock(&mu_);
    groups_[next_++] = std::move(files);
  }
  Tell();
}

int64_t FollowedFiles::next() const {
  MutexLock lock(&mu_);
  return next_;
}

void FollowedFiles::Close() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
  }
  Tell();
}

void FollowedFiles::Stop() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  Tell();
}

void FollowedFiles::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (failed_.ok()) failed_ = status;
  }
  Tell();
}

absl::StatusOr<FollowedFiles::Group> FollowedFiles::Find(int stream, int64_t number) {
  MutexLock lock(&mu_);
  const auto group = groups_.find(number);
  if (group != groups_.end()) {
    const Group found = {.state = Group::kThere, .files = group->second};
    at_[stream] = number;
    const auto slowest =
        std::min_element(at_.begin(), at_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    groups_.erase(groups_.begin(), groups_.lower_bound(slowest->second));
    return found;
  }
  if (!failed_.ok()) return failed_;
  return Group{.state = closed_ ? Group::kClosed : stopped_ ? Group::kStopped : Group::kUnknown};
}

bool FollowedFiles::KnowsLocked(int64_t number) const { return number < next_ || closed_ || stopped_ || !failed_.ok(); }

bool FollowedFiles::Knows(int64_t number) const {
  MutexLock lock(&mu_);
  return KnowsLocked(number);
}

void FollowedFiles::HasRead(const StreamReading& reading) {
  {
    MutexLock lock(&mu_);
    readings_[reading.stream][reading.group] = reading;
  }
  Changed();
}

std::vector<StreamReading> FollowedFiles::Readings(const std::function<int64_t(int stream)>& keep) {
  MutexLock lock(&mu_);
  std::vector<StreamReading> all;
  for (auto& [stream, groups] : readings_) {
    const int64_t kept = keep(stream);
    // Examples do not decrease from group to group.
    auto from = groups.begin();
    while (from != groups.end() && std::next(from) != groups.end() && std::next(from)->second.examples <= kept) ++from;
    groups.erase(groups.begin(), from);
    for (const auto& [group, reading] : groups) all.push_back(reading);
  }
  return all;
}

void FollowedFiles::SetAwaited(bool awaited) {
  {
    MutexLock lock(&mu_);
    if (awaited == awaited_) return;
    awaited_ = awaited;
  }
  Changed();
}

bool FollowedFiles::awaited() const {
  MutexLock lock(&mu_);
  return awaited_;
}

void FollowedFiles::SetOpening(bool opening) {
  MutexLock lock(&mu_);
  opening_ = opening;
}

bool FollowedFiles::opening() const {
  MutexLock lock(&mu_);
  return opening_;
}

void FollowedFiles::OnNews(std::function<void()> on_news) {
  MutexLock lock(&news_mu_);
  on_news_ = std::move(on_news);
}

void FollowedFiles::Tell() {
  {
    MutexLock lock(&news_mu_);
    if (on_news_) on_news_();
  }
  Changed();
}

void FollowedFiles::OnChange(std::function<void()> on_change) {
  MutexLock lock(&change_mu_);
  on_change_ = std::move(on_change);
}

void FollowedFiles::Changed() {
  MutexLock lock(&change_mu_);
  if (on_change_) on_change_();
}

}  // namespace weir
