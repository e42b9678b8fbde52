// Server's half of the lane tree: adds what trainers pushed, in an order that is a function of the job alone.
//
// A trainer pushes sums over aligned nodes of the tree (framework/runtime/lane_tree.h); these functions add them up to
// the root. An absent node is skipped, never added as zero. Pure functions of their inputs.
#ifndef WEIR_PSERVER_PROTOCOL_MERGE_GRADIENTS_H_
#define WEIR_PSERVER_PROTOCOL_MERGE_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"

namespace weir {

// Elements [begin, begin + values.size()) of one node's sum.
struct DenseRun {
  LaneRange node;
  int64_t begin = 0;
  absl::Span<const float> values;
};

// Adds the nodes of one dense block into out. The runs of a node must tile [0, out.size()), in any order; otherwise
// InvalidArgument. At least one run. `lanes`: number of leaves of the tree.
absl::Status SumDense(std::vector<DenseRun> runs, int lanes, absl::Span<float> out);

// Rows of one node. Row j has ids[j] and its values at values + j * width. The rows order[0], order[1], ... (order
// nullptr: 0, 1, ...) must ascend by MixId, each id once.
struct RowRun {
  LaneRange node;
  absl::Span<const int64_t> ids;
  const float* values = nullptr;  // [ids.size(), width]
  const uint32_t* order = nullptr;
};

// Rows after merging, ascending by MixId. A gradient pointer leads into a run if only one node has the row, else into
// `sums`. The next MergeRows reuses the memory.
struct MergedRows {
  std::vector<int64_t> ids;
  std::vector<const float*> grads;
  std::vector<float> sums;

  // Row `row` of a run.
  struct KeyedRow {
    uint64_t key;  // MixId of the id
    uint32_t run;
    uint32_t row;
  };
  // For MergeRows alone.
  struct Memory {
    std::vector<KeyedRow> unsorted, sorted;
    std::vector<uint32_t> places;
  };
  Memory memory;
};

// Merges all rows whose MixId lies in [first, last] into their union by id. InvalidArgument if two runs of one node
// have an id in common; an id that is twice in one run is not detected.
absl::Status MergeRows(absl::Span<const RowRun> runs, int width, uint64_t first, uint64_t last, MergedRows* out);

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_MERGE_GRADIENTS_H_
