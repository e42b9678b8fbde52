#include "pserver/replica/node_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/replica/packed_rows.h"

namespace weir {

namespace {

// Header in front of the ids and the values of a node.
struct NodeHeader {
  int64_t begin = 0, count = 0, rows = 0;
};

std::vector<uint32_t> OrderOf(const std::vector<int64_t>& ids) {
  std::vector<uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return MixId(static_cast<uint64_t>(ids[a])) < MixId(static_cast<uint64_t>(ids[b]));
  });
  return order;
}

}  // namespace

absl::StatusOr<std::string> PackNodeRows(absl::Span<const LaneRange> nodes, int width,
                                         absl::Span<const StepChannel::LaneRows> lanes) {
  std::string bytes;
  MergedRows merged;
  for (const LaneRange& node : nodes) {
    std::vector<std::vector<uint32_t>> orders;
    std::vector<RowRun> runs;
    for (const StepChannel::LaneRows& lane : lanes) {
      if (lane.lane < node.begin || lane.lane >= node.begin + node.count || lane.value->ids.empty()) continue;
      const std::vector<int64_t>& ids = lane.value->ids;
      if (lane.value->values.size() != static_cast<int64_t>(ids.size()) * width) {
        return absl::InvalidArgumentError(absl::StrCat(ids.size(), " rows come with ", lane.value->values.size(),
                                                       " values; ", static_cast<int64_t>(ids.size()) * width,
                                                       " are wanted"));
      }
      orders.push_back(OrderOf(ids));
      runs.push_back({.node = {lane.lane, 1}, .ids = ids, .values = lane.value->values.data<float>()});
    }
    if (runs.empty()) continue;
    for (size_t i = 0; i < runs.size(); ++i) runs[i].order = orders[i].data();
    RETURN_IF_ERROR(MergeRows(runs, width, 0, std::numeric_limits<uint64_t>::max(), &merged));
    const NodeHeader header = {node.begin, node.count, static_cast<int64_t>(merged.ids.size())};
    AppendPacked(&header, 1, &bytes);
    AppendPacked(merged.ids.data(), merged.ids.size(), &bytes);
    const size_t end = bytes.size() + PackedValueBytes(header.rows, width);
    for (const float* const row : merged.grads) AppendPacked(row, static_cast<size_t>(width), &bytes);
    bytes.resize(end, '\0');
  }
  return bytes;
}

absl::Status ReadNodeRows(const std::string& bytes, absl::Span<const LaneRange> nodes, int target, int width,
                          int64_t height, std::vector<Gradient>* gradients) {
  const auto wrong = [](std::string_view what) {
    return absl::DataLossError(absl::StrCat("gradient rows of another trainer: ", std::string(what)));
  };
  size_t at = 0;
  auto node = nodes.begin();
  while (at < bytes.size()) {
    NodeHeader header;
    if (bytes.size() - at < sizeof(header)) return wrong("cut short");
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    at += sizeof(header);
    // The division keeps the sizes below from overflowing.
    const size_t row_bytes = sizeof(int64_t) + static_cast<size_t>(width) * sizeof(float);
    if (header.rows < 0 || static_cast<size_t>(header.rows) > (bytes.size() - at) / row_bytes ||
        bytes.size() - at < static_cast<size_t>(header.rows) * sizeof(int64_t) + PackedValueBytes(header.rows, width)) {
      return wrong(absl::StrCat("a node of ", header.rows, " rows of width ", width, " does not fit ",
                                bytes.size() - at, " bytes"));
    }
    node = std::find_if(node, nodes.end(),
                        [&](const LaneRange& own) { return own.begin == header.begin && own.count == header.count; });
    if (node == nodes.end()) return wrong("a node that is not the trainer's, or that comes twice");
    Gradient& gradient = gradients->emplace_back();
    gradient.target = target;
    gradient.node = *node++;
    gradient.count = header.rows;
    gradient.width = width;
    gradient.ids = reinterpret_cast<const int64_t*>(bytes.data() + at);
    at += static_cast<size_t>(header.rows) * sizeof(int64_t);
    gradient.values = reinterpret_cast<const float*>(bytes.data() + at);
    at += PackedValueBytes(header.rows, width);
    for (int64_t r = 0; r < header.rows; ++r) {
      const int64_t id = gradient.ids[r];
      if (id < 0 || id >= height) return wrong(absl::StrCat("row ", id, " of ", height));
      if (r == 0 || MixId(static_cast<uint64_t>(gradient.ids[r - 1])) < MixId(static_cast<uint64_t>(id))) continue;
      return wrong(absl::StrCat("row ", id, " is out of order, or there twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
