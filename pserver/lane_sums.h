// The trainer's half of the lane tree: sums of lanes over the largest aligned nodes that a trainer owns.
#ifndef WEIR_PSERVER_LANE_SUMS_H_
#define WEIR_PSERVER_LANE_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/id_order.h"

namespace weir {

// Rows of one table that the lanes of one node bring, by position in an order of ids. Knows no values until Write.
class RowUnion {
 public:
  // `lanes`: all lanes of the process; those outside the node are left out. `order`: of `ids`; the rows of a lane point into ids
  // by their step_rows. False when a lane's rows do not (no step_rows, or out of range).
  bool Build(const LaneRange& node, absl::Span<const ParamChannel::LaneRows> lanes, size_t ids);

  // Positions in `ids` of those at [begin, end) of the order that some lane has a row of, in order.
  void Present(const IdOrder& order, size_t begin, size_t end, std::vector<uint32_t>* positions) const;

  // Sums [positions, width]; a sum is taken in the node's tree, absent lanes skipped.
  void WriteSums(absl::Span<const uint32_t> positions, int width, float* out) const { Write(&Lane::values, positions, width, out); }
  // The same of shows and clicks, [positions, 2]. Every lane has some.
  void WriteCounts(absl::Span<const uint32_t> positions, float* out) const { Write(&Lane::counts, positions, 2, out); }

  bool empty() const { return lanes_.empty(); }

 private:
  struct Lane {
    int leaf;  // place in the node
    const float* values;
    const float* counts;
  };
  // A row of a lane; the rows of one id hang together, lower lanes first.
  struct Entry {
    uint32_t lane;  // in lanes_
    uint32_t row;
    uint32_t next;  // place in entries_ + 1, or 0
  };
  void Write(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const;
  // kWidth: the width where it is known when this is compiled, else 0.
  template <int kWidth>
  void WriteRows(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const;
  // Of a single lane, and of several.
  template <int kWidth>
  void CopyRows(const float* values, absl::Span<const uint32_t> positions, int width, float* out) const;
  template <int kWidth>
  void SumRows(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const;

  int leaves_ = 1;
  std::vector<Lane> lanes_;
  std::vector<Entry> entries_;   // of several lanes
  // By position in ids: place in entries_ + 1, of a single lane its row + 1; or 0.
  std::vector<uint32_t> heads_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_LANE_SUMS_H_
