#include "framework/collective/addend_nodes.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/collective/operation.h"

namespace weir {

namespace {

absl::Status TakeNodes(int rank, const v1::CollectiveHeader& header, size_t segments, int tree_lanes, AddendNodes* to) {
  const uint64_t all = AllSegments(segments);
  for (int i = 0; i < header.node_begin_size(); ++i) {
    const LaneRange lanes{header.node_begin(i), header.node_count(i)};
    const int after = to->nodes.empty() ? 0 : to->nodes.back().lanes.begin + to->nodes.back().lanes.count;
    if (lanes.count < 1 || lanes.begin < after || lanes.count > tree_lanes - lanes.begin ||
        AlignedNodes(lanes).size() != 1) {
      return absl::FailedPreconditionError(
          absl::StrCat(DescribeOperation(header), ": rank ", rank, " has an addend of lanes ", lanes.begin, " to ",
                       int64_t{lanes.begin} + lanes.count - 1, ", which is no node of the tree of ", tree_lanes,
                       " lanes that follows the addends before it"));
    }
    const uint64_t present = header.present().empty() ? all : header.present(i);
    if ((present & ~all) != 0) {
      return absl::DataLossError(absl::StrCat(DescribeOperation(header), ": rank ", rank,
                                              " has an addend with segments that are not among the ", segments));
    }
    to->nodes.push_back({.lanes = lanes, .rank = rank, .index = i, .present = present});
    to->present |= present;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AddendNodes> AddendNodesOf(absl::Span<const v1::CollectiveHeader> headers, size_t segments, int lanes) {
  AddendNodes all;
  for (size_t r = 0; r < headers.size(); ++r) {
    const v1::CollectiveHeader& header = headers[r];
    if (header.node_begin_size() != header.node_count_size() || header.node_begin_size() > kMostAddends) {
      return absl::DataLossError(absl::StrCat(DescribeOperation(header), ": rank ", r, " has ",
                                              header.node_begin_size(), " addends; at most ", kMostAddends,
                                              " are possible"));
    }
    if (header.samples() < 0 || __builtin_add_overflow(all.samples, header.samples(), &all.samples)) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeOperation(header), ": rank ", r, " has ", header.samples(),
                                                     " samples, which is negative or too many"));
    }
    if (!header.present().empty() && header.present_size() != header.node_begin_size()) {
      return absl::DataLossError(absl::StrCat(DescribeOperation(header), ": rank ", r, " tells which segments ",
                                              header.present_size(), " of its ", header.node_begin_size(),
                                              " addends have"));
    }
    RETURN_IF_ERROR(TakeNodes(static_cast<int>(r), header, segments, lanes, &all));
  }
  return all;
}

absl::Status CheckDivisor(const v1::CollectiveHeader& header, uint64_t present, int64_t samples) {
  if (present == 0 || samples >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(DescribeOperation(header), ": the ranks have ", samples, " samples together"));
}

}  // namespace weir
