// Gradient rows of one table or block in one step, with their places among the distinct ids of the step.
#ifndef WEIR_PSERVER_CLIENT_PLACED_ROWS_H_
#define WEIR_PSERVER_CLIENT_PLACED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/client/id_order.h"
#include "pserver/client/lane_sums.h"
#include "pserver/client/row_orders.h"

namespace weir {

// Not thread-safe; constant functions may be called by several threads.
class PlacedRows {
 public:
  // Rows of prefetched tables know their places among the ids that were pulled (`pulled`). Rows of others, and those
  // whose table has no such ids, are placed among their own distinct ids, which are dealt to `servers` by `shards`.
  // Borrows the lanes and what `pulled` points to.
  PlacedRows(absl::Span<const StepChannel::LaneRows> lanes, const RowOrders::Known& pulled, uint32_t shards,
             int servers);
  PlacedRows(const PlacedRows&) = delete;
  PlacedRows& operator=(const PlacedRows&) = delete;

  // Makes the unions of the rows by node, on the threads of the pool. Returns false if a lane has an id twice, or one
  // that was not pulled.
  bool Unite(absl::Span<const LaneRange> nodes, ThreadPool* pool);

  absl::Span<const StepChannel::LaneRows> lanes() const { return lanes_; }
  absl::Span<const int64_t> ids() const { return ids_; }
  const IdOrder& order() const { return *order_; }
  // Returns the unions by node. Requires: Unite has been called.
  const std::vector<RowUnion>& unions() const { return *unions_; }

 private:
  void PlaceAmongOwn(uint32_t shards, int servers);

  absl::Span<const StepChannel::LaneRows> lanes_;
  absl::Span<const int64_t> ids_;
  const IdOrder* order_;
  StepUnions* step_unions_;
  const std::vector<RowUnion>* unions_ = nullptr;

  // Memory of what is placed and united here.
  std::vector<SelectedRows> own_rows_;
  std::vector<StepChannel::LaneRows> own_lanes_;
  std::vector<int64_t> own_ids_;
  IdOrder own_order_;
  StepUnions own_step_unions_;
  std::vector<RowUnion> own_unions_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_PLACED_ROWS_H_
