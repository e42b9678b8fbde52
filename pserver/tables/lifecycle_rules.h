// When the rows of one table come and go: message Lifecycle (proto/table.proto) as pure functions of job, step, logical
// shard and id. Constant.
//
// Steps are kept in 32 bits beside rows and compared by their difference, so that they may go round; a row that is
// ahead of the present step (its checkpoint was written at a later one) is as good as new.
#ifndef WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_
#define WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/table.pb.h"

namespace weir {

class LifecycleRules {
 public:
  // InvalidArgument: what a program may say, but no job (transpiler/check_job.cc).
  static absl::Status Check(const v1::Lifecycle& settings);

  LifecycleRules() : LifecycleRules(v1::Lifecycle(), 0, "", 0, 1) {}
  LifecycleRules(const v1::Lifecycle& settings, uint64_t seed, std::string_view table, int64_t capacity,
                 uint32_t logical_shards);

  // Places of 4-byte words among those of a row, or of a candidate; -1: it has none.
  struct Words {
    int step = -1;    // the last that had the id
    int second = -1;  // the same by the clock, since 1970
    int count = -1;   // steps that had the id
    int shows = -1;   // samples that had the id, as a float; decays
    int clicks = -1;  // and their clicks
    int size = 0;
    std::vector<std::string> names;
  };
  const Words& row_words() const { return row_words_; }
  const Words& candidate_words() const { return candidate_words_; }

  // Ids that have no row: each gets one, none does before its count or its score is reached, or chance decides.
  enum class Admission { kAll, kCount, kScore, kChance };
  Admission admission() const { return admission_; }
  int64_t admit_after() const { return admit_after_; }
  bool AdmittedByChance(int64_t id, int64_t step) const;
  // Whether ids are counted before they have rows.
  bool keeps_candidates() const { return admission_ == Admission::kCount || admission_ == Admission::kScore; }

  // Shows and clicks are counted; all about scores needs that.
  bool scores() const { return scores_; }
  double Score(float shows, float clicks) const {
    return show_coefficient_ * (static_cast<double>(shows) - clicks) + click_coefficient_ * static_cast<double>(clicks);
  }
  double admit_score() const { return admit_score_; }
  // Each shard at a border of its own, every so many steps: shows and clicks times decay(), and rows of lower scores
  // go.
  bool decays() const { return decay_every_ > 0; }
  // The first shard from `begin` on whose border it is behind the step, then every decay_every-th.
  int64_t FirstDecay(uint32_t begin, int64_t step) const {
    return begin + (step % decay_every_ + decay_every_ - begin % decay_every_) % decay_every_;
  }
  int64_t decay_every() const { return decay_every_; }
  float decay() const { return decay_; }
  bool Faded(float shows, float clicks) const { return Score(shows, clicks) < min_score_; }

  bool expires() const { return ttl_steps_ > 0 || ttl_seconds_ > 0; }
  // Rows of a shard are looked at every so many steps: a fourth of their time, so that they go between one and 1.25 of
  // it. The first shard from `begin` on that is due at the step, then every period-th; none without an end in steps.
  uint32_t FirstDue(uint32_t begin, int64_t step) const {
    if (ttl_steps_ == 0) return UINT32_MAX;
    return begin + static_cast<uint32_t>((step % period_ + period_ - begin % period_) % period_);
  }
  uint32_t period() const { return static_cast<uint32_t>(period_); }
  // Likewise by the clock: shards (begin, end] modulo their number, as counted by it; all from `shards` of them on.
  int64_t SecondsPosition(double now) const;
  bool by_clock() const { return ttl_seconds_ > 0; }
  bool ExpiredByStep(uint32_t last, int64_t step) const {
    return ttl_steps_ > 0 && Age(last, static_cast<uint32_t>(step)) >= ttl_steps_;
  }
  bool ExpiredByClock(uint32_t last, double now) const {
    return ttl_seconds_ > 0 && Age(last, static_cast<uint32_t>(static_cast<int64_t>(now))) >= ttl_seconds_;
  }

  bool evicts() const { return evicts_; }
  // The most rows of a logical shard at the border of two steps, and how many stay when there are more: a sixteenth
  // less, so that the shard is not searched anew for every row.
  int64_t most_in_shard() const { return most_in_shard_; }
  int64_t kept_in_shard() const { return most_in_shard_ - most_in_shard_ / 16; }
  // The lowest go first; of the same, the lower id. `score`: where scores are.
  uint64_t Keep(uint32_t last, uint32_t count, double score, int64_t step) const {
    const uint32_t age = Age(last, static_cast<uint32_t>(step));
    const uint32_t rank = !least_frequent_ ? 0 : scores_ ? InOrder(static_cast<float>(score)) : count;
    return uint64_t{rank} << 32 | (UINT32_MAX - age);
  }

  bool tombstones() const { return tombstones_; }

 private:
  static uint32_t Age(uint32_t last, uint32_t now) {
    const auto age = static_cast<int32_t>(now - last);
    return age < 0 ? 0 : static_cast<uint32_t>(age);
  }

  // Rises with x.
  static uint32_t InOrder(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }

  Words row_words_, candidate_words_;
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
  bool evicts_ = false;
  bool least_frequent_ = false;
  int64_t most_in_shard_ = 0;
  bool tombstones_ = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_LIFECYCLE_RULES_H_
