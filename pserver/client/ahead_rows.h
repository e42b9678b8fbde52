// Rows of later steps, pulled by one thread beside the program's.
#ifndef WEIR_PSERVER_CLIENT_AHEAD_ROWS_H_
#define WEIR_PSERVER_CLIENT_AHEAD_ROWS_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "framework/runtime/param_channel.h"
#include "pserver/client/ahead_puller.h"
#include "pserver/client/row_puller.h"
#include "pserver/member/member.h"

namespace weir {

// BeginStep names the step the rows are for, and PullRows asks at the version that this step is entitled to: in sync at
// its own; with bounded staleness it waits as the step itself would. In async the rows may miss what the program has
// pushed for the step before.
//
// The program adopts the id positions of the newest pull with UseRowsAhead. Requires: no pull is under way then.
class AheadRows : public RowSource {
 public:
  struct Options {
    // Borrowed.
    const BlockPlacement* placement = nullptr;
    PullCalls* calls = nullptr;
    Member* member = nullptr;
    // Version of the parameters that the program has received, in jobs whose rows may be pulled ahead of their version.
    // Null: they may not.
    const std::atomic<int64_t>* received = nullptr;
    // True: rows are read at the version of the step (RowPuller).
    bool in_turn = false;
  };
  explicit AheadRows(const Options& options);

  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override;

  // Sync: whether rows are pulled ahead of their version, and those that have changed then corrected; else pulls wait
  // at the servers for the version. The rows are the same. At first true. Requires: nothing is pulled ahead.
  void PullAheadOfVersion(bool on) { ahead_of_version_ = on; }
  // Sets whether the program waits for a pull that is under way. While it does, heart-beats tell the servers what that
  // pull waits for.
  void Need(bool needed) { member_.waits().NeedAhead(needed); }
  // Ends the pull that is under way, and all later ones, with Cancelled. Callable from any thread.
  void Cancel() { member_.waits().CancelAhead(); }

  int64_t rows() const { return puller_.rows() + exact_.rows(); }
  // Returns the ids asked for, by table.
  RowOrders& orders() { return puller_.orders(); }

 private:
  RowPuller puller_;
  AheadPuller exact_;
  Member& member_;
  const std::atomic<int64_t>* const received_;
  bool ahead_of_version_ = true;
  int64_t step_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_AHEAD_ROWS_H_
