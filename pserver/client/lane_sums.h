// Trainer's half of the lane tree: sums of lanes over the largest aligned nodes that a trainer owns.
#ifndef WEIR_PSERVER_CLIENT_LANE_SUMS_H_
#define WEIR_PSERVER_CLIENT_LANE_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/client/id_order.h"

namespace weir {

// Union of the ids that the lanes of one node have rows of, with each lane's rows, in an order of the ids. Holds no
// values until Write, so tables whose lanes have rows of the same ids share one. Keeps its memory from Build to Build.
// Not thread-safe.
class RowUnion {
 public:
  // `lanes`: all lanes of the process; those outside the node are left out. `order`: an order of `ids`; the step_rows
  // of a lane are positions in `ids`, which the order has all. Returns false if a lane has no step_rows, one that is
  // out of range, or two rows of one id, or if lanes do not ascend. Uses the threads of `pool`, if there is one, for
  // many rows; the result is the same.
  bool Build(const LaneRange& node, absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order,
             absl::Span<const int64_t> ids, ThreadPool* pool = nullptr);

  // Rows of the union, in the order: one for each id that some lane has a row of.
  struct Range {
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };
  // Returns the rows whose ids stand at [begin, end) of the order.
  Range At(const IdOrder& order, absl::Span<const int64_t> ids, size_t begin, size_t end) const;

  // Returns the id of the row before the range, null for the first row.
  const int64_t* Before(absl::Span<const int64_t> ids, Range range) const {
    return range.begin == 0 ? nullptr : &ids[positions_[range.begin - 1]];
  }

  // Writes the ids of the range to out. Requires, here and below: Build has returned true; `ids` and `lanes` are those
  // of Build, or lanes with equal step_rows.
  void WriteIds(absl::Span<const int64_t> ids, Range range, int64_t* out) const;
  // Writes the sums of values, [range, width]. Adds in the order of the node's tree; absent lanes are skipped.
  void WriteSums(absl::Span<const StepChannel::LaneRows> lanes, Range range, int width, float* out) const {
    Write(lanes, /*counts=*/false, range, width, out);
  }
  // Writes the sums of shows and clicks, [range, 2], added likewise. Requires: every lane has counts.
  void WriteCounts(absl::Span<const StepChannel::LaneRows> lanes, Range range, float* out) const {
    Write(lanes, /*counts=*/true, range, 2, out);
  }

  bool empty() const { return lanes_.empty(); }

 private:
  struct Lane {
    int leaf;      // place in the node
    size_t given;  // place in the lanes of Build
  };
  // One row of a lane.
  struct Entry {
    uint32_t lane;  // in lanes_
    uint32_t row;
  };
  // State of one id while the union is made.
  struct Known {
    uint32_t entries;  // number of rows; later the place of the next one in entries_
    uint32_t lane;     // the last lane with a row of this id, plus 1
  };
  // Row of a lane, with the place of its id in the order.
  struct Placed {
    uint32_t place;
    uint32_t row;
  };
  // Rows of one lane by the range of the order that they are in, and where each range begins.
  struct Dealt {
    std::vector<uint32_t> places;  // by row
    std::vector<Placed> rows;
    std::vector<uint32_t> begins;
  };
  // Rows and entries of the union in one range of the order, and the numbers of those before it.
  struct Part {
    size_t rows = 0, entries = 0;
    size_t rows_before = 0, entries_before = 0;
  };
  // Sets lanes_ and the number of their rows. Returns false if lanes do not ascend or have no step_rows.
  bool TakeLanes(const LaneRange& node, absl::Span<const StepChannel::LaneRows> lanes, size_t* total);
  bool BuildAlone(absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order, size_t ids);
  // Steps of the same on several threads, by ranges of the order.
  bool BuildOn(ThreadPool* pool, absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order);
  // Deals the rows of a lane to ranges. Returns false if one is out of range.
  bool Deal(const std::vector<int32_t>& step_rows, size_t ranges, Dealt* dealt) const;
  // Counts the rows of each id of a range. Returns false if a lane has two of one id.
  bool CountRange(size_t range, Part* part);
  void FillRange(size_t range, const IdOrder& order, const Part& part);

  void Write(absl::Span<const StepChannel::LaneRows> lanes, bool counts, Range range, int width, float* out) const;
  // kWidth: the width if it is a compile-time constant, else 0.
  template <int kWidth>
  void WriteRows(const std::vector<const float*>& values, Range range, int width, float* out) const;

  int leaves_ = 1;
  std::vector<Lane> lanes_;
  // Per row of the union: the position of its id in ids, and the begin of its entries; begins_ has one more at the end.
  std::vector<uint32_t> positions_, begins_;
  std::vector<Entry> entries_;  // entries of one id are adjacent, lower lanes first
  std::vector<Known> known_;    // by position in ids; of several threads, by place in the order
  // Used only where several threads build the union:
  std::vector<uint32_t> places_;  // by position in ids
  std::vector<Dealt> dealt_;      // by lane in lanes_
  std::vector<Part> parts_;       // by range
};

// Unions of a trainer's nodes for one order of ids. Thread-safe except for Reset.
class StepUnions {
 public:
  // Drops the unions because the order has changed. Requires: no result of Of is in use.
  void Reset();
  // Returns the unions by node, or null if Build returns false. The first call's result is kept and shared with later
  // calls whose lanes have equal step_rows; for others the unions are built in `own`. Valid until Reset() or the
  // destruction of `own`.
  const std::vector<RowUnion>* Of(absl::Span<const LaneRange> nodes, absl::Span<const StepChannel::LaneRows> lanes,
                                  const IdOrder& order, absl::Span<const int64_t> ids, std::vector<RowUnion>* own,
                                  ThreadPool* pool = nullptr);

 private:
  static bool Build(absl::Span<const LaneRange> nodes, absl::Span<const StepChannel::LaneRows> lanes,
                    const IdOrder& order, absl::Span<const int64_t> ids, std::vector<RowUnion>* unions,
                    ThreadPool* pool);

  Mutex mu_;
  bool made_ ABSL_GUARDED_BY(mu_) = false;
  // Input of the shared unions: each lane's number and row count, and the step_rows of all lanes, concatenated.
  struct Made {
    int lane;
    size_t rows;
  };
  std::vector<Made> lanes_ ABSL_GUARDED_BY(mu_);
  std::vector<int32_t> step_rows_ ABSL_GUARDED_BY(mu_);
  // Written only by the first call after Reset, when no reader has it yet.
  std::vector<RowUnion> unions_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_LANE_SUMS_H_
