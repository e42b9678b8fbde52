// The trainer's half of the lane tree: sums of lanes over the largest aligned nodes that a trainer owns.
#ifndef WEIR_PSERVER_CLIENT_LANE_SUMS_H_
#define WEIR_PSERVER_CLIENT_LANE_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/client/id_order.h"

namespace weir {

// Which rows the lanes of one node bring of which ids, in an order of the ids. Knows no values until Write, so tables
// whose lanes bring rows of the same ids share one. Keeps its memory from Build to Build.
class RowUnion {
 public:
  // `lanes`: all lanes of the process; those outside the node are left out. `order`: of `ids`; the rows of a lane point
  // into ids by their step_rows. False when a lane's rows do not (no step_rows, out of range, or twice to one id), or
  // lanes do not ascend.
  bool Build(const LaneRange& node, absl::Span<const ParamChannel::LaneRows> lanes, const IdOrder& order,
             absl::Span<const int64_t> ids);

  // Rows of the union: ids that some lane has a row of, in the order.
  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };
  // Those at [begin, end) of the order.
  Range At(const IdOrder& order, absl::Span<const int64_t> ids, size_t begin, size_t end) const;

  // The id of the row before the range, null for the first.
  const int64_t* Before(absl::Span<const int64_t> ids, Range range) const {
    return range.begin == 0 ? nullptr : &ids[positions_[range.begin - 1]];
  }

  // `ids` and `lanes` as in Build, or lanes with the same step_rows.
  void WriteIds(absl::Span<const int64_t> ids, Range range, int64_t* out) const;
  // Sums [range, width]; a sum is taken in the node's tree, absent lanes skipped.
  void WriteSums(absl::Span<const ParamChannel::LaneRows> lanes, Range range, int width, float* out) const {
    Write(lanes, /*counts=*/false, range, width, out);
  }
  // The same of shows and clicks, [range, 2]. Every lane has some.
  void WriteCounts(absl::Span<const ParamChannel::LaneRows> lanes, Range range, float* out) const {
    Write(lanes, /*counts=*/true, range, 2, out);
  }

  bool empty() const { return lanes_.empty(); }

 private:
  struct Lane {
    int leaf;      // place in the node
    size_t given;  // place in the lanes of Build
  };
  // A row of a lane.
  struct Entry {
    uint32_t lane;  // in lanes_
    uint32_t row;
  };
  // Of an id, while the union is made.
  struct Known {
    uint32_t entries;  // so many rows; then, where the next of them goes
    uint32_t lane;     // plus 1, the last that has brought it
  };
  void Write(absl::Span<const ParamChannel::LaneRows> lanes, bool counts, Range range, int width, float* out) const;
  // kWidth: the width where it is known when this is compiled, else 0.
  template <int kWidth>
  void WriteRows(const std::vector<const float*>& values, Range range, int width, float* out) const;

  int leaves_ = 1;
  std::vector<Lane> lanes_;
  // By row of the union: its id's place in ids, and where its entries begin; one more at the end.
  std::vector<uint32_t> positions_, begins_;
  std::vector<Entry> entries_;  // of one id together, lower lanes first
  std::vector<Known> known_;    // by place in ids
};

// The unions of a trainer's nodes for one order of ids. Thread-safe but for Reset.
class StepUnions {
 public:
  // There is another order. Nobody uses what Of gave any more.
  void Reset();
  // By node. What the first call makes is also for those that come later with the same rows in the same lanes; others
  // get theirs in `own`. Null: Build says no. Good until Reset, or until `own` goes.
  const std::vector<RowUnion>* Of(absl::Span<const LaneRange> nodes, absl::Span<const ParamChannel::LaneRows> lanes,
                                  const IdOrder& order, absl::Span<const int64_t> ids, std::vector<RowUnion>* own);

 private:
  static bool Build(absl::Span<const LaneRange> nodes, absl::Span<const ParamChannel::LaneRows> lanes,
                    const IdOrder& order, absl::Span<const int64_t> ids, std::vector<RowUnion>* unions);

  Mutex mu_;
  bool made_ ABSL_GUARDED_BY(mu_) = false;
  // What they were made of: of each lane its number and its step_rows, one behind the other.
  struct Made {
    int lane;
    size_t rows;
  };
  std::vector<Made> lanes_ ABSL_GUARDED_BY(mu_);
  std::vector<int32_t> step_rows_ ABSL_GUARDED_BY(mu_);
  // Written by the first call behind Reset alone, when nobody reads them.
  std::vector<RowUnion> unions_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_LANE_SUMS_H_
