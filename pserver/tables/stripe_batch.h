// Batch of one call in one stripe. Holds the stripe's lock from construction to Finish, or to destruction without
// Finish.
//
//   StripeBatch batch(&stripe, disk);                     // locks
//   RETURN_IF_ERROR(batch.BringIn(ids));                  // rows from the disk
//   batch.Walk(ids, layout.row_bytes(), fn);
//   return batch.Finish(status);                          // unlocks; moves rows beyond the memory budget to the disk
#ifndef WEIR_PSERVER_TABLES_STRIPE_BATCH_H_
#define WEIR_PSERVER_TABLES_STRIPE_BATCH_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "pserver/tables/disk_tier.h"
#include "pserver/tables/row_walk.h"
#include "pserver/tables/stripe.h"
#include "pserver/tables/stripe_map.h"

namespace weir {

class ABSL_SCOPED_LOCKABLE StripeBatch {
 public:
  // `disk` is null if all rows are in memory. Borrows both.
  StripeBatch(Stripe* stripe, DiskTier* disk) ABSL_EXCLUSIVE_LOCK_FUNCTION(stripe->mu) : stripe_(stripe), disk_(disk) {
    stripe_->mu.Lock();
  }
  ~StripeBatch() ABSL_UNLOCK_FUNCTION() {
    if (held_) stripe_->mu.Unlock();
  }
  StripeBatch(const StripeBatch&) = delete;
  StripeBatch& operator=(const StripeBatch&) = delete;

  // Brings the existing rows of these ids into memory and marks them as used now. May release the lock meanwhile.
  absl::Status BringIn(const StripeIds& ids) {
    stripe_->mu.AssertHeld();
    return disk_ == nullptr ? absl::OkStatus() : disk_->BringIn(*stripe_, ids);
  }

  // Calls fn(position in the call, MixId, row in memory or nullptr) for each id until it returns false. Prefetches the
  // first `touched` bytes of each row (weir::Walk).
  template <FetchLevel kLevel = FetchLevel::kSecond, typename Fn>
  void Walk(const StripeIds& ids, int64_t touched, const Fn& fn) {
    stripe_->mu.AssertHeld();
    if (ids.order == nullptr) {
      weir::Walk<kLevel>(
          stripe_->rows, ids.size, touched, [section = ids.ids + ids.begin](int64_t k) { return section[k]; },
          [&fn, begin = ids.begin](int64_t k, uint64_t mixed, char* row) { return fn(begin + k, mixed, row); });
    } else {
      weir::Walk<kLevel>(
          stripe_->rows, ids.size, touched,
          [all = ids.ids, order = ids.order + ids.begin](int64_t k) { return all[order[k]]; },
          [&fn, order = ids.order + ids.begin](int64_t k, uint64_t mixed, char* row) {
            return fn(int64_t{order[k]}, mixed, row);
          });
    }
  }

  // Does what Walk does, but looks for rows first among those that pulls have found (Stripe::seen), which saves reading
  // the index; then clears that list. Requires: ids.order is null, ids.begin is 0, ids ascend by MixId.
  template <typename Fn>
  void WalkSeen(const StripeIds& ids, int64_t touched, const Fn& fn) {
    stripe_->mu.AssertHeld();
    weir::Walk(
        stripe_->rows, ids.size, touched, [all = ids.ids](int64_t k) { return all[k]; }, fn, stripe_->seen);
    stripe_->seen.Clear();
  }

  // Releases the lock; then, if `status` is OK, moves rows beyond the memory budget to the disk. Returns the first
  // error. Must be the last call.
  absl::Status Finish(absl::Status status) ABSL_UNLOCK_FUNCTION() {
    stripe_->mu.AssertHeld();
    const bool crowded = disk_ != nullptr && disk_->Crowded(*stripe_);
    held_ = false;
    stripe_->mu.Unlock();
    if (crowded && status.ok()) status = disk_->MakeRoom(*stripe_);
    return status;
  }

 private:
  Stripe* const stripe_;
  DiskTier* const disk_;
  bool held_ = true;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STRIPE_BATCH_H_
