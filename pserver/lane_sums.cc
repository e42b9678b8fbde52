#include "pserver/lane_sums.h"

#include <algorithm>
#include <cstring>

namespace weir {

bool RowUnion::Build(const LaneRange& node, absl::Span<const ParamChannel::LaneRows> lanes, size_t ids) {
  leaves_ = node.count;
  size_t used = 0;
  for (const ParamChannel::LaneRows& lane : lanes) {
    if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
    const SelectedRows& rows = *lane.value;
    if (rows.ids.empty()) continue;
    if (rows.step_rows.size() != rows.ids.size()) return false;
    // Memory of an earlier step is used again.
    if (used == lanes_.size()) lanes_.emplace_back();
    Lane& mine = lanes_[used++];
    mine.leaf = lane.lane - node.begin;
    mine.values = rows.values.data<float>();
    mine.row.assign(ids, 0);
    for (size_t r = 0; r < rows.step_rows.size(); ++r) {
      const int32_t position = rows.step_rows[r];
      // Within a lane each id stands once.
      if (position < 0 || static_cast<size_t>(position) >= ids || mine.row[static_cast<size_t>(position)] != 0) return false;
      mine.row[static_cast<size_t>(position)] = static_cast<uint32_t>(r) + 1;
    }
  }
  lanes_.resize(used);
  std::sort(lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) { return a.leaf < b.leaf; });
  return true;
}

void RowUnion::Present(const IdOrder& order, size_t begin, size_t end, std::vector<uint32_t>* places) const {
  places->clear();
  for (size_t i = begin; i < end; ++i) {
    for (const Lane& lane : lanes_) {
      if (lane.row[order[i]] != 0) {
        places->push_back(static_cast<uint32_t>(i));
        break;
      }
    }
  }
}

void RowUnion::WriteIds(const IdOrder& order, absl::Span<const uint32_t> places, absl::Span<const int64_t> ids,
                        int64_t* out) const {
  for (uint32_t place : places) *out++ = ids[order[place]];
}

void RowUnion::WriteSums(const IdOrder& order, absl::Span<const uint32_t> places, int width, float* out) const {
  const size_t w = static_cast<size_t>(width);
  std::vector<const float*> leaf(static_cast<size_t>(leaves_));
  std::vector<float> inner(leaves_ > 2 ? static_cast<size_t>(leaves_) * w : 0);
  for (uint32_t place : places) {
    const uint32_t position = order[place];
    int present = 0;
    const float* first = nullptr;
    const float* second = nullptr;
    for (const Lane& lane : lanes_) {
      const uint32_t row = lane.row[position];
      if (row == 0) continue;
      const float* const values = lane.values + (row - 1) * w;
      if (++present == 1) {
        first = values;
      } else if (present == 2) {
        second = values;
      }
    }
    if (present == 1) {
      std::memcpy(out, first, w * sizeof(float));
    } else if (present == 2) {
      // Two lanes meet once in the tree, the lower on the left.
      for (size_t j = 0; j < w; ++j) out[j] = first[j] + second[j];
    } else {
      std::fill(leaf.begin(), leaf.end(), nullptr);
      for (const Lane& lane : lanes_) {
        const uint32_t row = lane.row[position];
        if (row != 0) leaf[static_cast<size_t>(lane.leaf)] = lane.values + (row - 1) * w;
      }
      for (size_t step = 1; step < leaf.size(); step *= 2) {
        for (size_t i = 0; i + step < leaf.size(); i += 2 * step) {
          if (leaf[i + step] == nullptr) continue;
          if (leaf[i] == nullptr) {
            leaf[i] = leaf[i + step];
            continue;
          }
          // The last sum goes where it is wanted.
          float* const to = i == 0 && 2 * step >= leaf.size() ? out : inner.data() + i * w;
          const float* const left = leaf[i];
          const float* const right = leaf[i + step];
          for (size_t j = 0; j < w; ++j) to[j] = left[j] + right[j];
          leaf[i] = to;
        }
      }
      if (leaf[0] != out) std::memcpy(out, leaf[0], w * sizeof(float));
    }
    out += w;
  }
}

}  // namespace weir
