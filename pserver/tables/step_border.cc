#include "pserver/tables/step_border.h"

#include <utility>
#include <vector>

#include "framework/base/status_macros.h"

namespace weir {

void StepBorder::Run(uint32_t begin, uint32_t end) {
  MutexLock lock(&stripe_.mu);
  for (const uint32_t shard : stripe_.lifecycle.TakeDue(begin, end, time_)) {
    Expire(shard);
    stripe_.lifecycle.ExpireCandidates(shard, time_);
  }
  if (rules_.decays()) {
    for (int64_t shard = rules_.FirstDecay(begin, time_.step); shard < end; shard += rules_.decay_every()) {
      Fade(static_cast<uint32_t>(shard));
      stripe_.lifecycle.FadeCandidates(static_cast<uint32_t>(shard));
    }
  }
  for (const uint32_t shard : stripe_.lifecycle.TakeOver()) {
    Evict(shard);
    stripe_.lifecycle.EvictCandidates(shard, time_);
  }
}

void StepBorder::Expire(uint32_t shard) {
  const auto [first, last] = map_.ShardRange(shard);
  std::vector<int64_t> gone;
  stripe_.rows.Visit(first, last, [&](int64_t id, char* row) {
    if (words_.Expired(layout_.Words(row), time_)) gone.push_back(id);
  });
  for (const int64_t id : gone) stripe_.Remove(id, time_.step);
  stripe_.lifecycle.counts().expired += static_cast<int64_t>(gone.size());
}

void StepBorder::Fade(uint32_t shard) {
  const auto [first, last] = map_.ShardRange(shard);
  std::vector<int64_t> gone;
  stripe_.rows.Visit(first, last, [&](int64_t id, char* row) {
    if (words_.Fade(layout_.Words(row))) gone.push_back(id);
  });
  for (const int64_t id : gone) stripe_.Remove(id, time_.step);
  stripe_.lifecycle.counts().faded += static_cast<int64_t>(gone.size());
}

void StepBorder::Evict(uint32_t shard) {
  if (!stripe_.lifecycle.HasTooManyRows(shard)) return;
  const auto [first, last] = map_.ShardRange(shard);
  LifecycleRules::Ranked going;
  stripe_.rows.Visit(first, last,
                     [&](int64_t id, char* row) { going.emplace_back(words_.Keep(layout_.Words(row), time_), id); });
  rules_.ChooseGoing(&going);
  for (const auto& [keep, id] : going) stripe_.Remove(id, time_.step);
  stripe_.lifecycle.counts().evicted += static_cast<int64_t>(going.size());
}

absl::Status StepBorderOnDisk::Run(uint32_t begin, uint32_t end) {
  MutexLock disk_lock(&stripe_.disk_mu);
  std::vector<uint32_t> due, over;
  {
    MutexLock lock(&stripe_.mu);
    due = stripe_.lifecycle.TakeDue(begin, end, time_);
  }
  for (const uint32_t shard : due) RETURN_IF_ERROR(Expire(shard));
  if (rules_.decays()) {
    for (int64_t shard = rules_.FirstDecay(begin, time_.step); shard < end; shard += rules_.decay_every()) {
      RETURN_IF_ERROR(Fade(static_cast<uint32_t>(shard)));
    }
  }
  {
    MutexLock lock(&stripe_.mu);
    over = stripe_.lifecycle.TakeOver();
  }
  for (const uint32_t shard : over) RETURN_IF_ERROR(Evict(shard));
  return absl::OkStatus();
}

absl::Status StepBorderOnDisk::Expire(uint32_t shard) {
  const auto [first, last] = map_.ShardRange(shard);
  LifecycleRules::Ranked going;
  const auto expired = [&](uint64_t, const char* words) { return words_.Expired(words, time_); };
  const auto find = [&](int64_t id, const char* row) {
    if (expired(0, layout_.Words(row))) going.emplace_back(0, id);
  };
  RETURN_IF_ERROR(disk_.Visit(stripe_, first, last, find, find));
  ASSIGN_OR_RETURN(const int64_t gone, disk_.Remove(stripe_, going, time_.step, expired));
  MutexLock lock(&stripe_.mu);
  stripe_.lifecycle.counts().expired += gone;
  stripe_.lifecycle.ExpireCandidates(shard, time_);
  return absl::OkStatus();
}

absl::Status StepBorderOnDisk::Fade(uint32_t shard) {
  const auto [first, last] = map_.ShardRange(shard);
  LifecycleRules::Ranked going;
  std::vector<int64_t> cold;
  const auto fade = [&](int64_t id, char* row) {
    if (words_.Fade(layout_.Words(row))) going.emplace_back(0, id);
    layout_.MarkChanged(row);
  };
  RETURN_IF_ERROR(disk_.Visit(stripe_, first, last, fade, [&](int64_t id, const char*) { cold.push_back(id); }));
  // Bring these rows into memory, where no other call sees one of them without its decay.
  RETURN_IF_ERROR(disk_.ChangeCold(stripe_, cold, fade));
  ASSIGN_OR_RETURN(const int64_t gone, disk_.Remove(stripe_, going, time_.step,
                                                    [&](uint64_t, const char* words) { return words_.Faded(words); }));
  MutexLock lock(&stripe_.mu);
  stripe_.lifecycle.counts().faded += gone;
  stripe_.lifecycle.FadeCandidates(shard);
  return absl::OkStatus();
}

absl::Status StepBorderOnDisk::Evict(uint32_t shard) {
  {
    MutexLock lock(&stripe_.mu);
    stripe_.lifecycle.EvictCandidates(shard, time_);
    if (!stripe_.lifecycle.HasTooManyRows(shard)) return absl::OkStatus();
  }
  const auto [first, last] = map_.ShardRange(shard);
  LifecycleRules::Ranked going;
  const auto rank = [&](int64_t id, const char* row) {
    going.emplace_back(words_.Keep(layout_.Words(row), time_), id);
  };
  RETURN_IF_ERROR(disk_.Visit(stripe_, first, last, rank, rank));
  rules_.ChooseGoing(&going);
  ASSIGN_OR_RETURN(const int64_t gone, disk_.Remove(stripe_, going, time_.step, [&](uint64_t keep, const char* words) {
    return words_.Keep(words, time_) == keep;
  }));
  MutexLock lock(&stripe_.mu);
  stripe_.lifecycle.counts().evicted += gone;
  return absl::OkStatus();
}

}  // namespace weir
