#include "pserver/tables/stripe_lifecycle.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "pserver/tables/lifecycle_words.h"
#include "pserver/tables/row_walk.h"
#include "pserver/tables/row_words.h"

namespace weir {

using Memory = LifecycleRules::Memory;

void StripeLifecycle::Init(const LifecycleRules* rules, const StripeMap* map) {
  rules_ = rules;
  map_ = map;
  if (!rules->evicts()) return;
  shard_rows_.assign(map->shards_per_stripe(), 0);
  shard_candidates_.assign(map->shards_per_stripe(), 0);
}

absl::Status StripeLifecycle::Set(Memory which, uint64_t mixed, const float* words) {
  RowStore& store = memory(which);
  char* entry = store.Find(mixed);
  if (entry == nullptr) {
    entry = store.Insert(mixed);
    if (entry == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("a stripe remembers ", store.size(),
                                                       " ids without a row and can have no more; use more servers"));
    }
    if (which == LifecycleRules::kCandidates) AddCandidate(mixed);
  }
  std::memcpy(entry, words, 4 * static_cast<size_t>(rules_->words(which).size));
  return absl::OkStatus();
}

void StripeLifecycle::Clear() {
  if (rules_->candidate_words().size > 0) candidates_.Clear();
  if (rules_->tombstones()) tombstones_.Clear();
  std::fill(shard_rows_.begin(), shard_rows_.end(), 0);
  std::fill(shard_candidates_.begin(), shard_candidates_.end(), 0);
  over_.clear();
  seconds_position_ = -1;
}

void StripeLifecycle::RowMade(uint64_t mixed) {
  if (rules_->evicts()) {
    const uint32_t shard = map_->ShardOf(mixed);
    if (++shard_rows_[Slot(shard)] == rules_->most_in_shard() + 1) over_.push_back(shard);
  }
  if (rules_->tombstones() && tombstones_.Find(mixed) != nullptr) tombstones_.Erase(mixed);
}

void StripeLifecycle::RowGone(uint64_t mixed, int64_t step) {
  if (rules_->evicts()) --shard_rows_[Slot(map_->ShardOf(mixed))];
  if (!rules_->tombstones()) return;
  char* const tombstone = tombstones_.Insert(mixed);
  // A stripe that is full of them forgets the further ones.
  if (tombstone != nullptr) SetWord(tombstone, 0, static_cast<uint32_t>(step));
}

void StripeLifecycle::AddCandidate(uint64_t mixed) {
  if (!rules_->evicts()) return;
  const uint32_t shard = map_->ShardOf(mixed);
  if (++shard_candidates_[Slot(shard)] == rules_->most_in_shard() + 1) over_.push_back(shard);
}

void StripeLifecycle::RemoveCandidate(int64_t id) {
  const uint64_t mixed = MixId(static_cast<uint64_t>(id));
  candidates_.Erase(mixed);
  if (rules_->evicts()) --shard_candidates_[Slot(map_->ShardOf(mixed))];
}

absl::StatusOr<size_t> StripeLifecycle::AdmitCounted(absl::Span<const int64_t> ids, const RowTime& time,
                                                     const float* const* shows, std::vector<uint32_t>* missing,
                                                     std::vector<Earlier>* earlier) {
  const LifecycleRules::Words& places = rules_->candidate_words();
  const LifecycleWords words(*rules_, places);
  size_t admitted = 0;
  bool full = false;
  const auto count = [&](int64_t m, uint64_t mixed, char* entry) {
    const uint32_t k = (*missing)[static_cast<size_t>(m)];
    if (entry == nullptr) {
      entry = candidates_.Insert(mixed);
      if (entry == nullptr) {
        full = true;
        return false;
      }
      std::memset(entry, 0, 4 * static_cast<size_t>(places.size));
      AddCandidate(mixed);
    }
    Earlier before;
    if (places.shows >= 0) before = {FloatWord(entry, places.shows), FloatWord(entry, places.clicks)};
    words.Stamp(entry, time, shows == nullptr ? nullptr : shows[k]);
    const bool gets_row = places.count >= 0 ? Word(entry, places.count) >= rules_->admit_after()
                                            : words.Score(entry) >= rules_->admit_score();
    if (!gets_row) return true;
    // m never runs behind.
    (*missing)[admitted++] = k;
    earlier->push_back(before);
    return true;
  };
  Walk(
      candidates_, static_cast<int64_t>(missing->size()), 4 * places.size,
      [&](int64_t m) { return ids[(*missing)[static_cast<size_t>(m)]]; }, count);
  if (full) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a stripe has ", candidates_.size(), " candidates and can have no more; use more servers"));
  }
  for (size_t i = 0; i < admitted; ++i) RemoveCandidate(ids[(*missing)[i]]);
  return admitted;
}

absl::Status StripeLifecycle::Admit(absl::Span<const int64_t> ids, const RowTime& time, const float* const* shows,
                                    std::vector<uint32_t>* missing, std::vector<Earlier>* earlier) {
  size_t admitted = 0;
  if (rules_->admission() == LifecycleRules::Admission::kChance) {
    for (const uint32_t k : *missing) {
      if (rules_->AdmittedByChance(ids[k], time.step)) (*missing)[admitted++] = k;
    }
  } else {
    ASSIGN_OR_RETURN(admitted, AdmitCounted(ids, time, shows, missing, earlier));
  }
  counts_.dropped += static_cast<int64_t>(missing->size() - admitted);
  missing->resize(admitted);
  earlier->resize(admitted);  // chance remembers nothing
  return absl::OkStatus();
}

std::vector<uint32_t> StripeLifecycle::TakeDue(uint32_t begin, uint32_t end, const RowTime& time) {
  std::vector<uint32_t> due;
  for (uint32_t shard = rules_->FirstDue(begin, time.step); shard < end; shard += rules_->period()) {
    due.push_back(shard);
  }
  if (!rules_->by_clock()) return due;
  const int64_t position = rules_->SecondsPosition(time.seconds), shards = map_->logical_shards();
  // A table that was just made, or loaded, starts where the clock stands.
  int64_t from = seconds_position_ < 0 ? position : seconds_position_;
  from = std::max(from, position - shards);
  for (uint32_t shard = begin; shard < end; ++shard) {
    // Find the first position behind `from` that is the shard's; it is due if it is not behind `position`.
    const int64_t next = from + 1 + ((shard - from - 1) % shards + shards) % shards;
    if (next <= position) due.push_back(shard);
  }
  seconds_position_ = std::max(seconds_position_, position);
  return due;
}

std::vector<uint32_t> StripeLifecycle::TakeOver() {
  std::vector<uint32_t> over = std::exchange(over_, {});
  std::sort(over.begin(), over.end());
  return over;
}

void StripeLifecycle::ExpireCandidates(uint32_t shard, const RowTime& time) {
  if (rules_->candidate_words().size == 0) return;
  const LifecycleWords words(*rules_, rules_->candidate_words());
  const auto [first, last] = map_->ShardRange(shard);
  std::vector<int64_t> gone;
  candidates_.Visit(first, last, [&](int64_t id, char* entry) {
    if (words.Expired(entry, time)) gone.push_back(id);
  });
  for (const int64_t id : gone) RemoveCandidate(id);
}

void StripeLifecycle::FadeCandidates(uint32_t shard) {
  if (rules_->candidate_words().size == 0) return;
  const LifecycleWords words(*rules_, rules_->candidate_words());
  const auto [first, last] = map_->ShardRange(shard);
  std::vector<int64_t> gone;
  candidates_.Visit(first, last, [&](int64_t id, char* entry) {
    if (words.Fade(entry)) gone.push_back(id);
  });
  for (const int64_t id : gone) RemoveCandidate(id);
}

void StripeLifecycle::EvictCandidates(uint32_t shard, const RowTime& time) {
  if (shard_candidates_[Slot(shard)] <= rules_->most_in_shard()) return;
  const LifecycleWords words(*rules_, rules_->candidate_words());
  const auto [first, last] = map_->ShardRange(shard);
  LifecycleRules::Ranked all;
  candidates_.Visit(first, last, [&](int64_t id, char* entry) { all.emplace_back(words.Keep(entry, time), id); });
  rules_->ChooseGoing(&all);
  for (const auto& [keep, id] : all) RemoveCandidate(id);
}

}  // namespace weir
