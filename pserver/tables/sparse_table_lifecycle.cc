// Rows that come and go: which ids get a row, and what the border behind a step takes in memory. On disk:
// sparse_table_disk.cc. What a lifecycle says is lifecycle_rules.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "pserver/tables/sparse_table.h"
#include "pserver/tables/sparse_table_impl.h"

namespace weir {

double SparseTable::ScoreOf(const char* words, const LifecycleRules::Words& places) const {
  return places.shows < 0 ? 0 : rules_.Score(FloatWord(words, places.shows), FloatWord(words, places.clicks));
}

void SparseTable::Stamp(char* words, const LifecycleRules::Words& places, const RowTime& time,
                        const float* shows) const {
  if (places.shows >= 0 && shows != nullptr) {
    SetFloatWord(words, places.shows, FloatWord(words, places.shows) + shows[0]);
    SetFloatWord(words, places.clicks, FloatWord(words, places.clicks) + shows[1]);
  }
  if (places.step >= 0) SetWord(words, places.step, static_cast<uint32_t>(time.step));
  if (places.second >= 0) SetWord(words, places.second, static_cast<uint32_t>(static_cast<int64_t>(time.seconds)));
  if (places.count >= 0) {
    const uint32_t count = Word(words, places.count);
    SetWord(words, places.count, count + (count < std::numeric_limits<uint32_t>::max() ? 1 : 0));
  }
}

absl::Status SparseTable::Admit(Stripe& stripe, absl::Span<const int64_t> ids, const RowTime& time,
                                const float* const* shows, std::vector<uint32_t>* missing,
                                std::vector<Earlier>* earlier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  size_t admitted = 0;
  absl::Status status;
  if (rules_.admission() == LifecycleRules::Admission::kChance) {
    for (uint32_t k : *missing) {
      if (rules_.AdmittedByChance(ids[k], time.step)) (*missing)[admitted++] = k;
    }
  } else {
    const LifecycleRules::Words& words = rules_.candidate_words();
    const auto count = [&](int64_t m, uint64_t mixed, char* row) {
      stripe.mu.AssertHeld();
      const uint32_t k = (*missing)[static_cast<size_t>(m)];
      if (row == nullptr) {
        row = stripe.candidates.Insert(mixed);
        if (row == nullptr) {
          status = absl::ResourceExhaustedError(absl::StrCat("table ", options_.name, ": a stripe has ",
                                                             stripe.candidates.size(),
                                                             " candidates and can have no more; use more servers"));
          return false;
        }
        std::memset(row, 0, static_cast<size_t>(4 * words.size));
        const uint32_t shard = Shard(mixed);
        if (rules_.evicts() &&
            ++stripe.shard_candidates[shard % stripe.shard_candidates.size()] == rules_.most_in_shard() + 1) {
          stripe.over.push_back(shard);
        }
      }
      Earlier before;
      if (words.shows >= 0) before = {FloatWord(row, words.shows), FloatWord(row, words.clicks)};
      Stamp(row, words, time, shows == nullptr ? nullptr : shows[k]);
      const bool gets_row = words.count >= 0 ? Word(row, words.count) >= rules_.admit_after()
                                             : ScoreOf(row, words) >= rules_.admit_score();
      if (!gets_row) return true;
      // m never runs behind.
      (*missing)[admitted++] = k;
      earlier->push_back(before);
      return true;
    };
    Walk(
        stripe.candidates, static_cast<int64_t>(missing->size()), 4 * words.size,
        [&](int64_t m) { return ids[(*missing)[static_cast<size_t>(m)]]; }, count);
    RETURN_IF_ERROR(status);
    for (size_t i = 0; i < admitted; ++i) {
      const uint64_t mixed = MixId(static_cast<uint64_t>(ids[(*missing)[i]]));
      stripe.candidates.Erase(mixed);
      if (rules_.evicts()) --stripe.shard_candidates[Shard(mixed) % stripe.shard_candidates.size()];
    }
  }
  stripe.counts.dropped += static_cast<int64_t>(missing->size() - admitted);
  missing->resize(admitted);
  return status;
}

void SparseTable::Remove(Stripe& stripe, int64_t id, const RowTime& time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  stripe.rows.Erase(MixId(static_cast<uint64_t>(id)));
  stripe.seen.Clear();
  Forget(stripe, id, time);
}

void SparseTable::Forget(Stripe& stripe, int64_t id, const RowTime& time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  const uint64_t mixed = MixId(static_cast<uint64_t>(id));
  --stripe.exist;
  rows_.fetch_sub(1, std::memory_order_relaxed);
  if (rules_.evicts()) --stripe.shard_rows[Shard(mixed) % stripe.shard_rows.size()];
  if (!rules_.tombstones()) return;
  char* tombstone = stripe.tombstones.Insert(mixed);
  // A stripe that is full of them forgets the further ones.
  if (tombstone != nullptr) SetWord(tombstone, 0, static_cast<uint32_t>(time.step));
}

void SparseTable::RemoveCandidate(Stripe& stripe, int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  const uint64_t mixed = MixId(static_cast<uint64_t>(id));
  stripe.candidates.Erase(mixed);
  if (rules_.evicts()) --stripe.shard_candidates[Shard(mixed) % stripe.shard_candidates.size()];
}

std::vector<uint32_t> SparseTable::Due(Stripe& stripe, uint32_t begin, uint32_t end, const RowTime& time) const
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  std::vector<uint32_t> due;
  for (uint32_t shard = rules_.FirstDue(begin, time.step); shard < end; shard += rules_.period()) due.push_back(shard);
  if (!rules_.by_clock()) return due;
  const int64_t position = rules_.SecondsPosition(time.seconds), shards = options_.logical_shards;
  // A table that was just made, or loaded, starts where the clock stands.
  int64_t from = stripe.seconds_position < 0 ? position : stripe.seconds_position;
  from = std::max(from, position - shards);
  for (uint32_t shard = begin; shard < end; ++shard) {
    // Whether one of (from, position] is the shard's.
    const int64_t next = from + 1 + ((shard - from - 1) % shards + shards) % shards;
    if (next <= position) due.push_back(shard);
  }
  stripe.seconds_position = std::max(stripe.seconds_position, position);
  return due;
}

bool SparseTable::Expired(const char* words, const LifecycleRules::Words& places, const RowTime& time) const {
  return (places.step >= 0 && rules_.ExpiredByStep(Word(words, places.step), time.step)) ||
         (places.second >= 0 && rules_.ExpiredByClock(Word(words, places.second), time.seconds));
}

uint64_t SparseTable::Keep(const char* words, const LifecycleRules::Words& places, const RowTime& time) const {
  return rules_.Keep(Word(words, places.step), places.count < 0 ? 0 : Word(words, places.count), ScoreOf(words, places),
                     time.step);
}

void SparseTable::ExpireRows(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  const auto [first, last] = ShardRange(shard);
  std::vector<int64_t> gone;
  stripe.rows.Visit(first, last, [&](int64_t id, char* row) {
    if (Expired(WordsOf(row), rules_.row_words(), time)) gone.push_back(id);
  });
  for (int64_t id : gone) Remove(stripe, id, time);
  stripe.counts.expired += static_cast<int64_t>(gone.size());
}

void SparseTable::ExpireCandidates(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (word_names_[kCandidates].empty()) return;
  const auto [first, last] = ShardRange(shard);
  std::vector<int64_t> gone;
  stripe.candidates.Visit(first, last, [&](int64_t id, char* row) {
    if (Expired(row, rules_.candidate_words(), time)) gone.push_back(id);
  });
  for (int64_t id : gone) RemoveCandidate(stripe, id);
}

bool SparseTable::Fade(char* words, const LifecycleRules::Words& places) const {
  const float shows = FloatWord(words, places.shows) * rules_.decay(),
              clicks = FloatWord(words, places.clicks) * rules_.decay();
  SetFloatWord(words, places.shows, shows);
  SetFloatWord(words, places.clicks, clicks);
  return rules_.Faded(shows, clicks);
}

void SparseTable::DecayRows(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  const auto [first, last] = ShardRange(shard);
  std::vector<int64_t> gone;
  stripe.rows.Visit(first, last, [&](int64_t id, char* row) {
    if (Fade(WordsOf(row), rules_.row_words())) gone.push_back(id);
  });
  for (int64_t id : gone) Remove(stripe, id, time);
  stripe.counts.faded += static_cast<int64_t>(gone.size());
}

void SparseTable::DecayCandidates(Stripe& stripe, uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (word_names_[kCandidates].empty()) return;
  const auto [first, last] = ShardRange(shard);
  std::vector<int64_t> gone;
  stripe.candidates.Visit(first, last, [&](int64_t id, char* row) {
    if (Fade(row, rules_.candidate_words())) gone.push_back(id);
  });
  for (int64_t id : gone) RemoveCandidate(stripe, id);
}

void SparseTable::ChooseGoing(Kept* all) const {
  const auto go = static_cast<ptrdiff_t>(all->size()) - static_cast<ptrdiff_t>(rules_.kept_in_shard());
  // A checkpoint that names a row twice makes counts too high.
  if (go <= 0) return all->clear();
  std::nth_element(all->begin(), all->begin() + go, all->end());
  all->resize(static_cast<size_t>(go));
}

void SparseTable::EvictRows(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (stripe.shard_rows[shard % stripe.shard_rows.size()] <= rules_.most_in_shard()) return;
  const auto [first, last] = ShardRange(shard);
  Kept all;
  stripe.rows.Visit(first, last,
                    [&](int64_t id, char* row) { all.emplace_back(Keep(WordsOf(row), rules_.row_words(), time), id); });
  ChooseGoing(&all);
  for (const auto& [keep, id] : all) Remove(stripe, id, time);
  stripe.counts.evicted += static_cast<int64_t>(all.size());
}

void SparseTable::EvictCandidates(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (stripe.shard_candidates[shard % stripe.shard_candidates.size()] <= rules_.most_in_shard()) return;
  const auto [first, last] = ShardRange(shard);
  Kept all;
  stripe.candidates.Visit(
      first, last, [&](int64_t id, char* row) { all.emplace_back(Keep(row, rules_.candidate_words(), time), id); });
  ChooseGoing(&all);
  for (const auto& [keep, id] : all) RemoveCandidate(stripe, id);
}

absl::Status SparseTable::EndStep(int stripe_number, const RowTime& time) {
  if (!rules_.expires() && !rules_.evicts() && !rules_.decays()) return absl::OkStatus();
  Stripe& stripe = stripes_[stripe_number];
  const auto [begin, end] = ShardsOf(stripe_number);
  if (disk_ != nullptr) return EndStepOnDisk(stripe, begin, end, time);
  MutexLock lock(&stripe.mu);
  for (uint32_t shard : Due(stripe, begin, end, time)) {
    ExpireRows(stripe, shard, time);
    ExpireCandidates(stripe, shard, time);
  }
  if (rules_.decays()) {
    for (int64_t shard = rules_.FirstDecay(begin, time.step); shard < end; shard += rules_.decay_every()) {
      DecayRows(stripe, static_cast<uint32_t>(shard), time);
      DecayCandidates(stripe, static_cast<uint32_t>(shard));
    }
  }
  std::sort(stripe.over.begin(), stripe.over.end());
  for (uint32_t shard : stripe.over) {
    EvictRows(stripe, shard, time);
    EvictCandidates(stripe, shard, time);
  }
  stripe.over.clear();
  return absl::OkStatus();
}

}  // namespace weir
