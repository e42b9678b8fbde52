// Pulls of table rows, and of fetched rows of dense parameters, for one thread: that of the program, or the one that
// works ahead of it.
#ifndef WEIR_PSERVER_CLIENT_ROW_PULLER_H_
#define WEIR_PSERVER_CLIENT_ROW_PULLER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/pull_plan.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/calls.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/row_orders.h"
#include "pserver/client/waits.h"

namespace weir {

// Not thread-safe.
class RowPuller {
 public:
  // `placement` and `calls` are borrowed. in_turn: rows are read at the version of the step; else as they are.
  RowPuller(const BlockPlacement* placement, PullCalls* calls, bool in_turn, Waits::Thread thread);

  // Functions of RowSource. Ids that are pulled in a read-only step belong to no step.
  void BeginStep(int64_t step, bool read_only);
  absl::Status PullRows(absl::Span<const RowSource::TableRows> tables);

  // Returns the number of rows pulled so far. Thread-safe.
  int64_t rows() const { return rows_; }
  // Returns the ids asked for, by table.
  RowOrders& orders() { return orders_; }

 private:
  // Rows of one list of ids, which is in order: of tables, or of a block of a fetched parameter.
  struct List {
    std::vector<const RowSource::TableRows*> tables;
    RowOrders::Asked asked;
    const FetchedParameter::Block* block = nullptr;
  };
  // Positions of a list that one server has.
  struct Range {
    const List* list = nullptr;
    size_t begin = 0, end = 0;

    const uint32_t* positions() const {
      return list->asked.order != nullptr ? list->asked.order->positions() : list->asked.fetched->data();
    }
  };

  // Returns the lists of ids, in order of the first table of each.
  std::vector<List> ListsOf(absl::Span<const RowSource::TableRows> tables,
                            absl::Span<const RowOrders::Asked> asked) const;
  // Returns the part of a list that lies on the server.
  static Range RangeOf(const List& list, int server);
  // Returns what a plan has to know of the range. Borrows the names of its tables or block.
  RowsToPull AskedOf(const Range& range) const;
  // Issues the calls for one server.
  void PullFrom(int server, absl::Span<const List> lists, std::vector<CallPtr>* calls);
  // Writes the ids of a planned message.
  WireBuffer WriteIds(const PlannedPull& planned, absl::Span<const Range> ranges) const;

  const BlockPlacement& placement_;
  PullCalls& calls_;
  const bool in_turn_;
  const Waits::Thread thread_;
  int64_t step_ = -1;
  bool read_only_ = false;
  RowOrders orders_;
  std::atomic<int64_t> rows_{0};  // atomic: read by any thread, for counters alone
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ROW_PULLER_H_
