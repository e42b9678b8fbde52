// Pulls of rows as messages: which rows lie on which server, the ids of each message, and where the rows of its answer
// go.
#ifndef WEIR_PSERVER_CLIENT_ROW_CALLS_H_
#define WEIR_PSERVER_CLIENT_ROW_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/payload_reader.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/slices.h"
#include "proto/table.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/id_order.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/row_orders.h"

namespace weir {

// Rows of one list of ids, which is in order: of tables, or of a block of a fetched parameter. Borrows everything.
struct RowList {
  std::vector<const RowSource::TableRows*> tables;
  RowOrders::Asked asked;
  const FetchedParameter::Block* block = nullptr;

  const uint32_t* positions() const {
    return asked.order != nullptr ? asked.order->positions() : asked.fetched->data();
  }
  size_t size() const { return asked.order != nullptr ? asked.order->size() : asked.fetched->size(); }
};

// Rows of one table in an answer.
struct RowsToRead {
  const RowSource::TableRows* table = nullptr;
  const uint32_t* positions = nullptr;  // of the rows, in the table's ids
  size_t rows = 0;
  v1::WireFormat format = v1::WIRE_FLOAT32;
  size_t bytes = 0;
};

// Rows of some lists that one server has, cut into messages. Borrows the lists.
struct RowMessages {
  // Positions of a list that the server has.
  struct Range {
    const RowList* list = nullptr;
    size_t begin = 0, end = 0;
  };
  std::vector<Range> ranges;
  std::vector<RowsToPull> asked;
  std::vector<PlannedPull> messages;
};

// Thread-safe.
class RowCalls {
 public:
  // Borrows both.
  RowCalls(const BlockPlacement* placement, PullCalls* calls) : placement_(*placement), calls_(*calls) {}

  // Returns the lists of ids, in order of the first table of each. `asked`: RowOrders::Order of the tables.
  std::vector<RowList> ListsOf(absl::Span<const RowSource::TableRows> tables,
                               absl::Span<const RowOrders::Asked> asked) const;
  // Returns the bytes of all ids of the lists.
  static size_t IdBytes(absl::Span<const RowList> lists);
  // Plans the messages for one server.
  RowMessages PlanFor(int server, absl::Span<const RowList> lists) const;
  // Returns the ids of a planned message; finishes their order as far as the message needs it. Messages of several
  // servers may be written at once.
  Slices WriteIds(const RowMessages& plan, const PlannedPull& planned) const;
  // Returns what the answer to a planned message holds.
  std::vector<RowsToRead> ReadsOf(const RowMessages& plan, const PlannedPull& planned) const;
  // Reads rows from an answer to their places.
  void Read(const RowsToRead& to, PayloadReader* reader) const;

 private:
  static RowMessages::Range RangeOf(const RowList& list, int server);
  // Returns what a plan for a server has to know of the range. Borrows the names of its tables or block.
  RowsToPull AskedOf(int server, const RowMessages::Range& range) const;

  const BlockPlacement& placement_;
  PullCalls& calls_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ROW_CALLS_H_
