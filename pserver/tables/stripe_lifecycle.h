// State of one stripe of a table for its lifecycle: ids without a row, the number of rows and candidates of each
// shard, and how far the search for expired rows has come. Not thread-safe: guarded by the stripe's lock.
//
// Admission and the removal of candidates are done here. Rows belong to the caller, which reports those made and
// removed.
#ifndef WEIR_PSERVER_TABLES_STRIPE_LIFECYCLE_H_
#define WEIR_PSERVER_TABLES_STRIPE_LIFECYCLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/row_store.h"
#include "pserver/tables/stripe_map.h"

namespace weir {

class StripeLifecycle {
 public:
  // Must be called first. Borrows both.
  void Init(const LifecycleRules* rules, const StripeMap* map);
  // Returns the ids that are remembered with their words. The caller initializes a store before the first use, if the
  // rules have words for it.
  RowStore& memory(LifecycleRules::Memory memory) {
    return memory == LifecycleRules::kCandidates ? candidates_ : tombstones_;
  }
  // Sets the words of an entry, as read from a checkpoint. ResourceExhausted, without the table's name: no more
  // entries are possible.
  absl::Status Set(LifecycleRules::Memory memory, uint64_t mixed, const float* words);
  // Forgets everything but counts().
  void Clear();

  // Records that an id got a row, or that its row was removed at a step.
  void RowMade(uint64_t mixed);
  void RowGone(uint64_t mixed, int64_t step);

  // Shows and clicks counted for a candidate before it got a row.
  struct Earlier {
    float shows = 0, clicks = 0;
  };
  // Decides the admission of ids[k], for each k in `missing`, ascending: counts candidates, or draws by chance. On
  // return `missing` holds the admitted ones, and `earlier` what was counted for them before (nothing by chance).
  // `shows`: of ids, or null. ResourceExhausted, without the table's name: no more candidates are possible. Requires:
  // the admission is not kAll; `earlier` is empty.
  absl::Status Admit(absl::Span<const int64_t> ids, const RowTime& time, const float* const* shows,
                     std::vector<uint32_t>* missing, std::vector<Earlier>* earlier);

  // Returns the shards of [begin, end), all of the stripe, whose rows are to be examined for expiry, and marks them as
  // examined. A shard that is due by steps and by the clock may be there twice.
  std::vector<uint32_t> TakeDue(uint32_t begin, uint32_t end, const RowTime& time);
  // Returns, in ascending order, the shards that have got too many rows or candidates since the last call.
  // A shard with too many of both is there twice.
  std::vector<uint32_t> TakeOver();
  // Returns true if the shard has more rows than it may have. Requires, here and for EvictCandidates: the rules evict.
  bool HasTooManyRows(uint32_t shard) const { return shard_rows_[Slot(shard)] > rules_->most_in_shard(); }
  // Remove the candidates of a shard whose time is over, those whose decayed score is too low, and those beyond the
  // number that a shard may have.
  void ExpireCandidates(uint32_t shard, const RowTime& time);
  void FadeCandidates(uint32_t shard);
  void EvictCandidates(uint32_t shard, const RowTime& time);

  // Counts since the table was made.
  struct Counts {
    int64_t expired = 0;  // rows
    int64_t evicted = 0;  // rows
    int64_t faded = 0;    // rows
    int64_t dropped = 0;  // gradients of ids that were not admitted
  };
  Counts& counts() { return counts_; }
  int64_t candidates() const { return static_cast<int64_t>(candidates_.size()); }
  int64_t tombstones() const { return static_cast<int64_t>(tombstones_.size()); }
  size_t bytes() const { return candidates_.bytes() + tombstones_.bytes(); }

 private:
  size_t Slot(uint32_t shard) const { return shard % shard_rows_.size(); }
  void AddCandidate(uint64_t mixed);
  void RemoveCandidate(int64_t id);
  // Counts missing ids as candidates. Returns the number admitted, which stand first in `missing`.
  absl::StatusOr<size_t> AdmitCounted(absl::Span<const int64_t> ids, const RowTime& time, const float* const* shows,
                                      std::vector<uint32_t>* missing, std::vector<Earlier>* earlier);

  const LifecycleRules* rules_ = nullptr;
  const StripeMap* map_ = nullptr;
  RowStore candidates_;
  RowStore tombstones_;
  // Used when the lifecycle evicts: counts by shard, and the shards that have got too many.
  std::vector<int64_t> shard_rows_;
  std::vector<int64_t> shard_candidates_;
  std::vector<uint32_t> over_;
  // Clock position up to which shards have been examined for expiry; -1: none yet.
  int64_t seconds_position_ = -1;
  Counts counts_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STRIPE_LIFECYCLE_H_
