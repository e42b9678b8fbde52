// Rules by which the rows of one table come and go: message Lifecycle (proto/table.proto) as pure functions of job,
// step, logical shard and id. Immutable.
//
// Steps are kept in 32 bits beside rows and compared by their difference, so that they may wrap around. A row whose
// step is ahead of the present one (its checkpoint was written at a later step) counts as just used.
#ifndef WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_
#define WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/table.pb.h"

namespace weir {

// Time of a change to rows.
struct RowTime {
  int64_t step = 0;
  // Seconds since 1970; read only when rows expire by the clock.
  double seconds = 0;
};

class LifecycleRules {
 public:
  // Returns InvalidArgument for settings that a program may contain although no job can (transpiler/job/check_job.cc).
  static absl::Status Check(const v1::Lifecycle& settings);

  LifecycleRules() : LifecycleRules(v1::Lifecycle(), 0, "", 0, 1) {}
  LifecycleRules(const v1::Lifecycle& settings, uint64_t seed, std::string_view table, int64_t capacity,
                 uint32_t logical_shards);

  // Memory of ids without a row: candidates, which are counted until they are admitted, and tombstones, which record
  // when a row was removed.
  enum Memory { kCandidates = 0, kTombstones = 1 };

  // Indices of the 4-byte words of a row, a candidate or a tombstone; -1: it has no such word.
  struct Words {
    int step = -1;    // last step that had the id
    int second = -1;  // time of that step in seconds since 1970
    int count = -1;   // number of steps that had the id
    int shows = -1;   // number of samples that had the id, as a float; decays
    int clicks = -1;  // number of their clicks, likewise
    int size = 0;
    std::vector<std::string> names;
  };
  const Words& row_words() const { return row_words_; }
  const Words& candidate_words() const { return candidate_words_; }
  // Returns the words of an entry; none if the lifecycle keeps no such memory.
  const Words& words(Memory memory) const { return memory == kCandidates ? candidate_words_ : tombstone_words_; }

  // Admission of ids without a row: every id gets a row, or an id gets one when its count or its score is reached, or
  // by chance.
  enum class Admission { kAll, kCount, kScore, kChance };
  Admission admission() const { return admission_; }
  int64_t admit_after() const { return admit_after_; }
  bool AdmittedByChance(int64_t id, int64_t step) const;
  // Returns true if ids are counted before they have rows.
  bool keeps_candidates() const { return admission_ == Admission::kCount || admission_ == Admission::kScore; }

  // Returns true if shows and clicks are counted, as everything about scores requires.
  bool scores() const { return scores_; }
  double Score(float shows, float clicks) const {
    return show_coefficient_ * (static_cast<double>(shows) - clicks) + click_coefficient_ * static_cast<double>(clicks);
  }
  double admit_score() const { return admit_score_; }
  // Returns true if scores decay: every decay_every() steps, each shard at steps of its own, shows and clicks are
  // multiplied by decay(), and rows whose score is too low are removed.
  bool decays() const { return decay_every_ > 0; }
  // Returns the first shard from `begin` on that decays after `step`; from there it is every decay_every-th.
  int64_t FirstDecay(uint32_t begin, int64_t step) const {
    return begin + (step % decay_every_ + decay_every_ - begin % decay_every_) % decay_every_;
  }
  int64_t decay_every() const { return decay_every_; }
  float decay() const { return decay_; }
  bool Faded(float shows, float clicks) const { return Score(shows, clicks) < min_score_; }

  bool expires() const { return ttl_steps_ > 0 || ttl_seconds_ > 0; }
  // Returns the first shard from `begin` on whose rows are examined for expiry at `step`; from there it is every
  // period-th. A shard is examined at least once every quarter of the time to live, so that rows go at an age between 1
  // and 1.25 of it. Returns UINT32_MAX if rows do not expire by steps.
  uint32_t FirstDue(uint32_t begin, int64_t step) const {
    if (ttl_steps_ == 0) return UINT32_MAX;
    return begin + static_cast<uint32_t>((step % period_ + period_ - begin % period_) % period_);
  }
  uint32_t period() const { return static_cast<uint32_t>(period_); }
  // Returns a position that grows with the clock. Between positions `begin` and `end`, shards (begin, end] modulo the
  // number of shards are due; all of them if end - begin is at least that number.
  int64_t SecondsPosition(double now) const;
  bool by_clock() const { return ttl_seconds_ > 0; }
  bool ExpiredByStep(uint32_t last, int64_t step) const {
    return ttl_steps_ > 0 && Age(last, static_cast<uint32_t>(step)) >= ttl_steps_;
  }
  bool ExpiredByClock(uint32_t last, double now) const {
    return ttl_seconds_ > 0 && Age(last, static_cast<uint32_t>(static_cast<int64_t>(now))) >= ttl_seconds_;
  }

  bool evicts() const { return most_in_shard_ > 0; }
  // Maximum number of rows of a logical shard after a step, and the number that stays when there are more: a sixteenth
  // less, so that the shard is not searched again for every row.
  int64_t most_in_shard() const { return most_in_shard_; }
  int64_t kept_in_shard() const { return most_in_shard_ - most_in_shard_ / 16; }
  // Returns the rank by which rows are kept: the lowest go first; of equal ranks, the lower id. `score` counts only
  // where scores are kept.
  uint64_t Keep(uint32_t last, uint32_t count, double score, int64_t step) const {
    const uint32_t age = Age(last, static_cast<uint32_t>(step));
    const uint32_t rank = !least_frequent_ ? 0 : scores_ ? InOrder(static_cast<float>(score)) : count;
    return uint64_t{rank} << 32 | (UINT32_MAX - age);
  }

  // Ids of one shard with their ranks.
  using Ranked = std::vector<std::pair<uint64_t, int64_t>>;
  // Reduces all rows of a shard to those that are to be removed.
  void ChooseGoing(Ranked* all) const;

  bool tombstones() const { return tombstone_words_.size > 0; }

 private:
  static uint32_t Age(uint32_t last, uint32_t now) {
    const auto age = static_cast<int32_t>(now - last);
    return age < 0 ? 0 : static_cast<uint32_t>(age);
  }

  // Maps x to an integer that rises with x.
  static uint32_t InOrder(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }

  Words row_words_, candidate_words_, tombstone_words_;
  Admission admission_ = Admission::kAll;
  int64_t admit_after_ = 0;
  double probability_ = 1;
  bool scores_ = false;
  double show_coefficient_ = 0, click_coefficient_ = 0;
  double admit_score_ = 0, min_score_ = 0;
  int64_t decay_every_ = 0;
  float decay_ = 1;
  uint64_t key_ = 0;
  int64_t ttl_steps_ = 0;
  int64_t period_ = 1;
  double ttl_seconds_ = 0;
  int64_t shards_ = 1;
  bool least_frequent_ = false;
  int64_t most_in_shard_ = 0;  // 0: no row is evicted
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_
