// End of a step in one stripe: removes rows and candidates whose time is over, whose score is too low, or that exceed
// the capacity. Which ones is a function of the rows and the time.
#ifndef WEIR_PSERVER_TABLES_STEP_BORDER_H_
#define WEIR_PSERVER_TABLES_STEP_BORDER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "pserver/tables/disk_tier.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/lifecycle_words.h"
#include "pserver/tables/row_layout.h"
#include "pserver/tables/stripe.h"
#include "pserver/tables/stripe_map.h"

namespace weir {

// Step border of a table whose rows are all in memory: one pass under the stripe's lock.
class StepBorder {
 public:
  // Borrows all but `time`.
  StepBorder(const LifecycleRules& rules, const StripeMap& map, const RowLayout& layout, Stripe* stripe,
             const RowTime& time)
      : rules_(rules), map_(map), layout_(layout), stripe_(*stripe), words_(rules, rules.row_words()), time_(time) {}

  // Works on shards [begin, end), all that the stripe has on this server.
  void Run(uint32_t begin, uint32_t end) ABSL_LOCKS_EXCLUDED(stripe_.mu);

 private:
  void Expire(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.mu);
  void Fade(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.mu);
  void Evict(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.mu);

  const LifecycleRules& rules_;
  const StripeMap& map_;
  const RowLayout& layout_;
  Stripe& stripe_;
  const LifecycleWords words_;
  const RowTime time_;
};

// Step border of a table with rows on disk. Holds the stripe's disk_mu throughout, and its lock only for work in
// memory.
class StepBorderOnDisk {
 public:
  // Borrows all but `time`.
  StepBorderOnDisk(const LifecycleRules& rules, const StripeMap& map, const RowLayout& layout, DiskTier* disk,
                   Stripe* stripe, const RowTime& time)
      : rules_(rules),
        map_(map),
        layout_(layout),
        disk_(*disk),
        stripe_(*stripe),
        words_(rules, rules.row_words()),
        time_(time) {}

  // Works on shards [begin, end), all that the stripe has on this server. Returns errors of ColdRows.
  absl::Status Run(uint32_t begin, uint32_t end) ABSL_LOCKS_EXCLUDED(stripe_.disk_mu);

 private:
  absl::Status Expire(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.disk_mu);
  absl::Status Fade(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.disk_mu);
  absl::Status Evict(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe_.disk_mu);

  const LifecycleRules& rules_;
  const StripeMap& map_;
  const RowLayout& layout_;
  DiskTier& disk_;
  Stripe& stripe_;
  const LifecycleWords words_;
  const RowTime time_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STEP_BORDER_H_
