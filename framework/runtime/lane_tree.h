// Defines the fixed binary tree in which lanes are added, and the runs of lanes assigned to trainers.
//
// Node (lane, lanes): the sum over lanes [lane, lane + lanes), lanes a power of two that divides lane. It is the sum of
// its left half and its right half, in that order; an absent half is skipped, never added as zero. A trainer pushes the
// largest nodes it owns completely; the server adds the rest. So the order of addition is a function of the job alone.
#ifndef WEIR_FRAMEWORK_RUNTIME_LANE_TREE_H_
#define WEIR_FRAMEWORK_RUNTIME_LANE_TREE_H_

#include <vector>

namespace weir {

struct LaneRange {
  int begin = 0;
  int count = 0;
  bool operator==(const LaneRange&) const = default;
};

// Returns the lanes of a trainer: runs as even as possible, longer runs first (8 over 3: 3, 3, 2). lanes 0 counts as
// one lane per trainer.
LaneRange LanesOfTrainer(int lanes, int trainers, int trainer);

// Returns the largest aligned nodes that tile [begin, begin + count), ascending. {0, 3} -> {0,2} {2,1}.
std::vector<LaneRange> AlignedNodes(LaneRange range);

// Returns the largest aligned nodes that tile the lanes of these trainers together, ascending. `of`: ascending.
std::vector<LaneRange> NodesOfTrainers(int lanes, int trainers, const std::vector<int>& of);

// Addition of node `right` into node `left` (indices into `present`). TreeAdds returns the additions, in order, that
// reduce `present` nodes (disjoint, aligned, ascending) to the root of `lanes` leaves; the sum ends in node 0. Empty
// for one node.
struct LaneAdd {
  int left = 0;
  int right = 0;
};
std::vector<LaneAdd> TreeAdds(const std::vector<LaneRange>& present, int lanes);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_LANE_TREE_H_
