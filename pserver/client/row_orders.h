// Ids that one thread has asked tables for, in the order in which servers have them. Gradient rows of the step find
// their places by them. Not thread-safe, except that Find may be called by several threads between two calls of Order.
#ifndef WEIR_PSERVER_CLIENT_ROW_ORDERS_H_
#define WEIR_PSERVER_CLIENT_ROW_ORDERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/id_order.h"
#include "pserver/client/lane_sums.h"

namespace weir {

class RowOrders {
 public:
  // Order of the ids to ask for, of one TableRows.
  struct Asked {
    IdOrder* order = nullptr;  // of a table; tables that are asked for the same ids have one in common
    // Positions of the ids that a fetched parameter has, ascending by row; null for a table.
    const std::vector<uint32_t>* fetched = nullptr;
  };

  // `placement` is borrowed.
  explicit RowOrders(const BlockPlacement* placement) : placement_(*placement) {}

  // Records and sorts the ids of each table; equal id lists are sorted once. Zeroes the rows of ids that a fetched
  // parameter does not have. `step`: the step the ids belong to, -1 if no gradients follow. `unfinished`: without other
  // threads the order of a single list of ids may be left to be finished piece by piece. The result is valid until the
  // next call. Requires: the ids live and stay unchanged until the step has been pushed. InvalidArgument: the plan does
  // not have the table.
  absl::StatusOr<std::vector<Asked>> Order(absl::Span<const RowSource::TableRows> tables, int64_t step, bool unfinished,
                                           ThreadPool* pool);

  // Ids of one table in a step.
  struct Known {
    absl::Span<const int64_t> ids;
    const IdOrder* order = nullptr;
    StepUnions* unions = nullptr;
  };
  // Returns the ids that the newest Order for this table has got, null in `order` if they are not of this step.
  Known Find(std::string_view table, int64_t step);

  // Exchanges what both know of tables.
  void SwapTables(RowOrders* other) { tables_.swap(other->tables_); }

 private:
  // Ids of one table, as Order got them.
  struct TableIds {
    absl::Span<const int64_t> ids;
    int64_t step = -1;
    int64_t call = -1;  // number of the Order call they are from
    // Another table of the call with the same ids, whose order and unions serve this one, too. Null: this table has its
    // own.
    TableIds* same_as = nullptr;
    IdOrder order;
    StepUnions unions;
    // Order of the ids to ask for: those that this table does not have already (TableRows.there).
    IdOrder asked;
  };
  // Records the ids of all tables; null for a fetched parameter. Appends to `first` the indices of those whose ids have
  // to be put in order.
  absl::StatusOr<std::vector<TableIds*>> Record(absl::Span<const RowSource::TableRows> tables, int64_t step,
                                                std::vector<size_t>* first);
  uint32_t ShardsOf(std::string_view table) const;

  const BlockPlacement& placement_;
  int64_t calls_ = 0;
  std::map<std::string, TableIds, std::less<>> tables_;
  std::map<std::string, std::vector<uint32_t>, std::less<>> fetched_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ROW_ORDERS_H_
