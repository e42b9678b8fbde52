// Pulls of table rows, and of fetched rows of dense parameters, for one thread: that of the program, or the one that
// works ahead of it.
#ifndef WEIR_PSERVER_CLIENT_ROW_PULLER_H_
#define WEIR_PSERVER_CLIENT_ROW_PULLER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/row_calls.h"
#include "pserver/client/row_orders.h"
#include "pserver/member/calls.h"
#include "pserver/member/waits.h"

namespace weir {

// Not thread-safe.
class RowPuller {
 public:
  // `placement` and `calls` are borrowed. in_turn: rows are read at the version of the step; else as they are.
  RowPuller(const BlockPlacement* placement, PullCalls* calls, bool in_turn, Waits::Thread thread);

  // Functions of RowSource. Ids that are pulled in a read-only step belong to no step. Requires: BeginStep before
  // PullRows.
  void BeginStep(int64_t step, bool read_only);
  absl::Status PullRows(absl::Span<const RowSource::TableRows> tables);

  // Returns the number of rows pulled so far. Thread-safe.
  int64_t rows() const { return rows_; }
  // Returns the ids asked for, by table.
  RowOrders& orders() { return orders_; }

 private:
  // Issues the calls for one server. May be called for several servers at once.
  void PullFrom(int server, absl::Span<const RowList> lists, std::vector<CallPtr>* calls);

  PullCalls& calls_;
  const RowCalls row_calls_;
  const bool in_turn_;
  const Waits::Thread thread_;
  int64_t step_ = -1;
  bool read_only_ = false;
  RowOrders orders_;
  std::atomic<int64_t> rows_{0};  // atomic: read by any thread, for counters alone
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ROW_PULLER_H_
