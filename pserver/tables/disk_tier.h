// Disk tier of one table: how its rows come into memory and leave it. Thread-safe, by the locks of the stripes.
//
// A row in memory counts, whatever lies on disk; a row that is not in memory is as it lies there. Rows leave memory,
// and the disk, under the stripe's disk_mu. A reader of the disk holds no lock: it looks afterwards whether a row of
// the same version slot has left memory since it looked for the row there, and if so reads again.
#ifndef WEIR_PSERVER_TABLES_DISK_TIER_H_
#define WEIR_PSERVER_TABLES_DISK_TIER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "pserver/tables/cold_rows.h"
#include "pserver/tables/row_layout.h"
#include "pserver/tables/stripe.h"
#include "pserver/tables/stripe_map.h"

namespace weir {

class DiskTier {
 public:
  // `store` has rows of layout.stored_bytes(). `memory_bytes`: budget for rows in memory with their index, and for the
  // memory of the store. `stripes`: their number. Borrows `layout`.
  DiskTier(std::string table, const RowLayout& layout, std::unique_ptr<ColdRows> store, int64_t memory_bytes,
           int stripes);

  // Prepares a new stripe.
  void Init(Stripe* stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe->mu);
  // Marks a row that was just made as used now, and as changed.
  void RowMade(const Stripe& stripe, char* row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
    layout_.SetUse(row, stripe.on_disk.clock);
    layout_.MarkChanged(row);
  }

  // Brings the existing rows of a batch into memory and marks them as used now. The stripe's lock is held on entry and
  // on return, but not throughout.
  absl::Status BringIn(Stripe& stripe, const StripeIds& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Returns true if the stripe has more rows in memory than the budget allows.
  bool Crowded(const Stripe& stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
    return static_cast<int64_t>(stripe.rows.size()) > most_in_stripe_.load(std::memory_order_relaxed);
  }
  // Move rows beyond the budget out of memory.
  absl::Status MakeRoom(Stripe& stripe) ABSL_LOCKS_EXCLUDED(stripe.mu);
  absl::Status MakeRoomHeld(Stripe& stripe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu);

  // Visits every row with MixId in [first, last] once: first those in memory, under the stripe's lock; then, without
  // it, those that are only on disk.
  absl::Status Visit(Stripe& stripe, uint64_t first, uint64_t last,
                     const std::function<void(int64_t id, char* row)>& in_memory,
                     const std::function<void(int64_t id, const char* stored)>& on_disk) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu);
  // Removes the rows of `going` from the disk, and from memory too unless still(keep, words) is false there, because
  // the row changed meanwhile. Returns the number removed.
  absl::StatusOr<int64_t> Remove(Stripe& stripe, const LifecycleRules::Ranked& going, int64_t step,
                                 const std::function<bool(uint64_t keep, const char* words)>& still)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu);
  // Calls fn(row) for rows that are only on disk, each of which is brought into memory for it and is the first to leave
  // memory again. `ids`: of existing rows. DataLoss: a row cannot be found.
  absl::Status ChangeCold(Stripe& stripe, absl::Span<const int64_t> ids,
                          const std::function<void(int64_t id, char* row)>& fn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu);
  // Deletes every row on disk.
  absl::Status Clear() { return store_->Clear(); }

  const ColdRows& store() const { return *store_; }

 private:
  struct ReadRows;
  // Takes rows that `read` holds into memory, and lists in `next` those that must be read, for the first time or again.
  // Returns true if none of the latter can exist.
  absl::StatusOr<bool> TakeIn(Stripe& stripe, const StripeIds& batch, const ReadRows& read, ReadRows* next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Removes the rows that are to leave memory and have not changed; copies the others, which must be written first.
  void Choose(Stripe& stripe, std::vector<int64_t>* ids, std::vector<char>* rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  static void LeaveMemory(Stripe& stripe, uint64_t mixed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Sets the number of rows a stripe may have in memory, from the memory that the store takes now.
  void SetGoal();

  const std::string table_;
  const RowLayout& layout_;
  const std::unique_ptr<ColdRows> store_;
  const int64_t memory_bytes_;
  const int stripes_;
  // Goal for the number of rows in memory, updated by each call that makes room. Orders no other memory.
  std::atomic<int64_t> most_in_stripe_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_DISK_TIER_H_
