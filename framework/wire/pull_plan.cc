#include "framework/wire/pull_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

// Collects pieces until a message is full.
class Messages {
 public:
  explicit Messages(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Begins a message unless `bytes` more, as floats, fit in the present one.
  PlannedPull& MessageFor(size_t bytes) {
    if (planned_.empty() || (bytes_ > 0 && bytes_ + bytes > most_bytes_)) {
      planned_.emplace_back();
      bytes_ = 0;
    }
    return planned_.back();
  }
  // Counts bytes that have been added to the present message.
  void Count(size_t bytes) { bytes_ += bytes; }

  std::vector<PlannedPull> Take() { return std::move(planned_); }

 private:
  const size_t most_bytes_;
  std::vector<PlannedPull> planned_;
  size_t bytes_ = 0;  // of the present message
};

v1::PullItem* AddItem(std::string_view name, v1::WireFormat format, const PlannedPull::Piece& piece,
                      PlannedPull* pull) {
  v1::PullItem* const item = pull->request.add_items();
  item->set_name(std::string(name));
  item->set_count(static_cast<int64_t>(piece.count));
  if (format != v1::WIRE_FLOAT32) item->set_format(format);
  pull->pieces.push_back(piece);
  pull->answer_bytes += AlignUp(piece.bytes);
  return item;
}

}  // namespace

std::vector<PlannedPull> PlanRowPulls(absl::Span<const RowsToPull> asked, size_t most_bytes) {
  Messages messages(most_bytes);
  for (size_t a = 0; a < asked.size(); ++a) {
    const RowsToPull& rows = asked[a];
    size_t row_bytes = 0;
    for (const RowsToPull::Tensor& tensor : rows.tensors)
      row_bytes += static_cast<size_t>(tensor.width) * sizeof(float);
    const size_t rows_per_call = RowsPerCall(rows.rows, row_bytes, most_bytes);
    for (size_t begin = 0; begin < rows.rows; begin += rows_per_call) {
      const size_t count = std::min(rows_per_call, rows.rows - begin);
      PlannedPull& pull = messages.MessageFor(count * row_bytes);
      for (size_t t = 0; t < rows.tensors.size(); ++t) {
        const RowsToPull::Tensor& tensor = rows.tensors[t];
        const size_t width = static_cast<size_t>(tensor.width);
        const size_t bytes = EncodedBytes(tensor.format, count * width, width);
        v1::PullItem* const item =
            AddItem(tensor.name, tensor.format, {a, t, begin, count, bytes, pull.id_bytes}, &pull);
        item->set_width(tensor.width);
        item->set_offset(static_cast<int64_t>(pull.id_bytes));
      }
      pull.id_bytes += AlignUp(count * sizeof(int64_t));
      messages.Count(AlignUp(count * row_bytes));
    }
  }
  return messages.Take();
}

std::vector<PlannedPull> PlanBlockPulls(absl::Span<const BlockToPull> asked, v1::WireFormat format, size_t most_bytes) {
  Messages messages(most_bytes);
  const size_t per_call = most_bytes / sizeof(float);
  for (size_t a = 0; a < asked.size(); ++a) {
    const size_t all = static_cast<size_t>(asked[a].count);
    for (size_t begin = 0; begin < all; begin += per_call) {
      const size_t count = std::min(per_call, all - begin);
      PlannedPull& pull = messages.MessageFor(count * sizeof(float));
      const size_t bytes = EncodedBytes(format, count, kDenseGroup);
      v1::PullItem* const item = AddItem(asked[a].name, format, {a, 0, begin, count, bytes, 0}, &pull);
      item->set_begin(static_cast<int64_t>(begin));
      messages.Count(count * sizeof(float));
    }
  }
  return messages.Take();
}

}  // namespace weir
