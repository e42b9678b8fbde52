#include "pserver/client/placed_rows.h"

#include <algorithm>

namespace weir {

PlacedRows::PlacedRows(absl::Span<const StepChannel::LaneRows> lanes, const RowOrders::Known& pulled, uint32_t shards,
                       int servers)
    : lanes_(lanes), ids_(pulled.ids), order_(pulled.order), step_unions_(pulled.unions) {
  const bool all_placed = std::all_of(lanes.begin(), lanes.end(), [](const StepChannel::LaneRows& lane) {
    return lane.value->step_rows.size() == lane.value->ids.size();
  });
  if (order_ == nullptr || !all_placed) PlaceAmongOwn(shards, servers);
}

void PlacedRows::PlaceAmongOwn(uint32_t shards, int servers) {
  for (const StepChannel::LaneRows& lane : lanes_) {
    own_ids_.insert(own_ids_.end(), lane.value->ids.begin(), lane.value->ids.end());
  }
  std::sort(own_ids_.begin(), own_ids_.end());
  own_ids_.erase(std::unique(own_ids_.begin(), own_ids_.end()), own_ids_.end());
  own_order_.Sort(own_ids_, shards, servers);
  own_rows_.resize(lanes_.size());
  for (size_t l = 0; l < lanes_.size(); ++l) {
    SelectedRows& rows = own_rows_[l];
    rows = *lanes_[l].value;  // shares the values
    rows.step_rows.resize(rows.ids.size());
    for (size_t r = 0; r < rows.ids.size(); ++r) {
      rows.step_rows[r] =
          static_cast<int32_t>(std::lower_bound(own_ids_.begin(), own_ids_.end(), rows.ids[r]) - own_ids_.begin());
    }
    own_lanes_.push_back({lanes_[l].lane, &rows, lanes_[l].counts});
  }
  lanes_ = own_lanes_;
  ids_ = own_ids_;
  order_ = &own_order_;
  step_unions_ = &own_step_unions_;
}

bool PlacedRows::Unite(absl::Span<const LaneRange> nodes, ThreadPool* pool) {
  unions_ = step_unions_->Of(nodes, lanes_, *order_, ids_, &own_unions_, pool);
  return unions_ != nullptr;
}

}  // namespace weir
