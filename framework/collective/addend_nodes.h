// Addends of all ranks of a reduction, as their headers tell them.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_ADDEND_NODES_H_
#define WEIR_FRAMEWORK_COLLECTIVE_ADDEND_NODES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/collective/reduction.h"
#include "framework/runtime/lane_tree.h"
#include "proto/collective.pb.h"

namespace weir {

// Most addends of a rank: more would not fit into message numbers.
inline constexpr int kMostAddends = 64;
// Returns the bits of `segments` segments; of one if there are none.
inline uint64_t AllSegments(size_t segments) {
  return segments >= kMostSegments ? ~uint64_t{0} : (uint64_t{1} << std::max<size_t>(1, segments)) - 1;
}

struct AddendNode {
  LaneRange lanes;
  int rank = 0;
  int index = 0;  // among the rank's addends
  uint64_t present = 0;
};

struct AddendNodes {
  std::vector<AddendNode> nodes;  // by lane
  uint64_t present = 0;           // segments of any of them
  int64_t samples = 0;            // of all ranks
};

// Returns what the headers of all ranks, by rank, say. An error names the rank whose header cannot be right. lanes:
// leaves of the tree.
absl::StatusOr<AddendNodes> AddendNodesOf(absl::Span<const v1::CollectiveHeader> headers, size_t segments, int lanes);

// Checks that there are samples to divide by, if there is anything to divide.
absl::Status CheckDivisor(const v1::CollectiveHeader& header, uint64_t present, int64_t samples);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_ADDEND_NODES_H_
