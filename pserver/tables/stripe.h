// One stripe of a table: its rows in memory, what is known of those on disk, and the locks around them.
#ifndef WEIR_PSERVER_TABLES_STRIPE_H_
#define WEIR_PSERVER_TABLES_STRIPE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "pserver/tables/row_count.h"
#include "pserver/tables/row_store.h"
#include "pserver/tables/row_walk.h"
#include "pserver/tables/stripe_lifecycle.h"

namespace weir {

// Bookkeeping of one stripe's rows on disk; used by DiskTier. Not thread-safe: guarded by the stripe's lock.
struct StripeOnDisk {
  // Returns the number of times that rows with these low bits of MixId left memory. A row read from the disk before the
  // number changed may be outdated. Only with a disk.
  uint32_t& VersionOf(uint64_t mixed) { return versions[mixed % kVersions]; }

  static constexpr uint64_t kVersions = 1024;
  std::vector<uint32_t> versions;  // [kVersions]; empty without a disk
  // True if some row may be on disk.
  bool some = false;
  // Number of calls that used rows, modulo 2^31.
  uint32_t clock = 0;
  // Counts since the table was made.
  int64_t used = 0;     // ids of calls
  int64_t read = 0;     // rows brought into memory
  int64_t written = 0;  // rows that had changed and left memory
};

// Ids whose rows have been updated, made, set or removed since the last Begin, if that asked for it. Not thread-safe:
// guarded by the stripe's lock.
class StripeChanges {
 public:
  // Forgets all changes. Later ones are recorded; with `record` false every row counts as changed instead.
  void Begin(bool record) {
    all_ = !record;
    mixed_.clear();
  }
  void Add(uint64_t mixed) {
    if (!all_) mixed_.push_back(mixed);
  }
  void AddAll() { Begin(/*record=*/false); }
  bool all() const { return all_; }
  // Returns MixId of the ids that were added, ascending. Requires: !all().
  absl::Span<const uint64_t> Sorted() {
    // Ids of an update come in order, removals behind them.
    if (!std::is_sorted(mixed_.begin(), mixed_.end())) std::sort(mixed_.begin(), mixed_.end());
    return mixed_;
  }

 private:
  bool all_ = true;
  std::vector<uint64_t> mixed_;
};

struct alignas(64) Stripe {
  // Removes a row from memory and from all counts, in step `step`.
  void Remove(int64_t id, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    rows.Erase(mixed);
    seen.Clear();
    Forget(mixed, step);
  }
  // Updates the counts for a row that does not exist any more.
  void Forget(uint64_t mixed, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    --exist;
    count->Remove(1);
    lifecycle.RowGone(mixed, step);
    changes.Add(mixed);
  }
  // Forgets all rows and ids, and makes reads of the disk that are under way outdated.
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    count->Remove(exist);
    exist = 0;
    rows.Clear();
    seen.Clear();
    lifecycle.Clear();
    changes.AddAll();
    for (uint32_t& version : on_disk.versions) ++version;
  }

  mutable Mutex mu;
  RowStore rows ABSL_GUARDED_BY(mu);
  SeenRows seen ABSL_GUARDED_BY(mu);
  // Number of existing rows, in memory or on disk. Invariant: at least rows.size(), and equal to it without a disk.
  int64_t exist ABSL_GUARDED_BY(mu) = 0;
  // Number of rows made by updates and pulls, not from checkpoints, since the table was made.
  int64_t made ABSL_GUARDED_BY(mu) = 0;
  StripeLifecycle lifecycle ABSL_GUARDED_BY(mu);
  StripeOnDisk on_disk ABSL_GUARDED_BY(mu);
  StripeChanges changes ABSL_GUARDED_BY(mu);
  RowCount* count = nullptr;  // the table's; constant

  // Used with rows on disk. Serializes calls that remove rows of this stripe from memory or from the disk, and calls
  // that visit all its rows. Acquire before mu; held across disk I/O. DiskTier::BringIn reads the disk without it (see
  // StripeOnDisk::VersionOf).
  Mutex disk_mu ABSL_ACQUIRED_BEFORE(mu);
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STRIPE_H_
