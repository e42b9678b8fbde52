#include "framework/wire/push_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

v1::PushItem ItemOf(std::string_view name, const PushNode& node, v1::WireFormat format) {
  v1::PushItem item;
  item.set_name(std::string(name));
  item.set_lane(node.lane);
  item.set_lanes(node.lanes);
  if (format != v1::WIRE_FLOAT32) item.set_format(format);
  return item;
}

}  // namespace

std::vector<PlannedDense> PlanDensePush(std::string_view name, int64_t count, absl::Span<const PushNode> nodes,
                                        v1::WireFormat format) {
  const int64_t per_part =
      static_cast<int64_t>(kBytesOfOneTensor / nodes.size() / kAlignment * kAlignment / sizeof(float));
  std::vector<PlannedDense> planned;
  for (int64_t begin = 0; begin < count; begin += per_part) {
    PlannedDense& part = planned.emplace_back();
    part.begin = begin;
    part.count = std::min(per_part, count - begin);
    for (const PushNode& node : nodes) {
      v1::PushItem item = ItemOf(name, node, format);
      item.set_begin(part.begin);
      item.set_count(part.count);
      part.tensors.push_back({std::move(item), EncodedBytes(format, static_cast<size_t>(part.count), kDenseGroup)});
    }
  }
  return planned;
}

size_t RowsPerPush(const RowForm& form, size_t nodes) {
  const size_t row_bytes = sizeof(int64_t) + static_cast<size_t>(form.width + (form.counts ? 2 : 0)) * sizeof(float);
  return std::max<size_t>(1, kRowBytesPerCall / row_bytes / nodes);
}

PlannedRows PlanRowsPush(std::string_view name, const PushNode& node, size_t rows, const RowForm& form) {
  PlannedRows planned;
  v1::PushItem& item = planned.tensor.item;
  item = ItemOf(name, node, form.format);
  item.set_count(static_cast<int64_t>(rows));
  item.set_width(form.width);
  if (form.counts) item.set_shows_and_clicks(true);
  const size_t width = static_cast<size_t>(form.width);
  PushRowLayout& layout = planned.layout;
  layout.ids_end = rows * sizeof(int64_t);
  layout.values_begin = AlignUp(layout.ids_end);
  layout.values_end = layout.values_begin + EncodedBytes(form.format, rows * width, width);
  layout.counts_begin = AlignUp(layout.values_end);
  planned.tensor.bytes = form.counts ? layout.counts_begin + rows * 2 * sizeof(float) : layout.values_end;
  return planned;
}

bool PushPart::LeavesAtOnce(size_t bytes) { return bytes >= kGatherBytes; }

bool PushPart::HasRoomFor(size_t bytes) const { return bytes_ + bytes <= kGatherBytes; }

size_t PushPart::Add(v1::PushItem item, size_t bytes) {
  const size_t at = bytes_;
  item.set_offset(static_cast<int64_t>(at));
  items_.push_back(std::move(item));
  bytes_ += AlignUp(bytes);
  return at;
}

void PushPart::FillHeader(int number, bool last, v1::PushRequest* header) && {
  for (v1::PushItem& item : items_) *header->add_items() = std::move(item);
  header->set_part(number);
  if (last) header->set_part_count(number + 1);
}

}  // namespace weir
