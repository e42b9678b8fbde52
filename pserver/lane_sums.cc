#include "pserver/lane_sums.h"

#include <algorithm>
#include <cstring>

namespace weir {

namespace {

// Rows are asked for so far ahead of being copied.
constexpr size_t kAhead = 16;

}  // namespace

bool RowUnion::Build(const LaneRange& node, absl::Span<const ParamChannel::LaneRows> lanes, size_t ids) {
  leaves_ = node.count;
  lanes_.clear();
  entries_.clear();
  std::vector<const SelectedRows*> rows;
  size_t total = 0;
  for (const ParamChannel::LaneRows& lane : lanes) {
    if (lane.lane < node.begin || lane.lane >= node.begin + node.count || lane.value->ids.empty()) continue;
    if (lane.value->step_rows.size() != lane.value->ids.size()) return false;
    // Lanes come ascending.
    if (!lanes_.empty() && lanes_.back().leaf >= lane.lane - node.begin) return false;
    lanes_.push_back({lane.lane - node.begin, lane.value->values.data<float>(), lane.counts == nullptr ? nullptr : lane.counts->data<float>()});
    rows.push_back(lane.value);
    total += lane.value->ids.size();
  }
  if (lanes_.empty()) return true;
  heads_.assign(ids, 0);
  if (lanes_.size() == 1) {
    const std::vector<int32_t>& positions = rows[0]->step_rows;
    for (size_t r = 0; r < positions.size(); ++r) {
      if (positions[r] < 0 || static_cast<size_t>(positions[r]) >= ids) return false;
      uint32_t& head = heads_[static_cast<size_t>(positions[r])];
      if (head != 0) return false;
      head = static_cast<uint32_t>(r + 1);
    }
    return true;
  }
  entries_.reserve(total);
  // From the last lane to the first, each in front of what is there: so every chain ascends.
  for (size_t l = lanes_.size(); l-- > 0;) {
    const std::vector<int32_t>& positions = rows[l]->step_rows;
    for (size_t r = 0; r < positions.size(); ++r) {
      if (positions[r] < 0 || static_cast<size_t>(positions[r]) >= ids) return false;
      uint32_t& head = heads_[static_cast<size_t>(positions[r])];
      // Within a lane each id stands once.
      if (head != 0 && entries_[head - 1].lane == l) return false;
      entries_.push_back({static_cast<uint32_t>(l), static_cast<uint32_t>(r), head});
      head = static_cast<uint32_t>(entries_.size());
    }
  }
  return true;
}

void RowUnion::Present(const IdOrder& order, size_t begin, size_t end, std::vector<uint32_t>* positions) const {
  positions->resize(end - begin);
  size_t n = 0;
  for (size_t i = begin; i < end; ++i) {
    const uint32_t position = order[i];
    (*positions)[n] = position;
    n += heads_[position] != 0;
  }
  positions->resize(n);
}

template <int kWidth>
void RowUnion::CopyRows(const float* values, absl::Span<const uint32_t> positions, int width, float* out) const {
  const size_t w = static_cast<size_t>(kWidth > 0 ? kWidth : width);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i + kAhead < positions.size()) __builtin_prefetch(values + (heads_[positions[i + kAhead]] - 1) * w);
    std::memcpy(out + i * w, values + (heads_[positions[i]] - 1) * w, w * sizeof(float));
  }
}

template <int kWidth>
void RowUnion::SumRows(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const {
  const size_t w = static_cast<size_t>(kWidth > 0 ? kWidth : width);
  std::vector<const float*> leaf(static_cast<size_t>(leaves_));
  std::vector<float> inner(leaves_ > 2 ? static_cast<size_t>(leaves_) * w : 0);
  const auto values = [&](const Entry& entry) { return lanes_[entry.lane].*what + entry.row * w; };
  for (size_t i = 0; i < positions.size(); ++i, out += w) {
    // The entries of a row are asked for first, and its values, whose place they say, when they have come.
    if (i + 2 * kAhead < positions.size()) __builtin_prefetch(&entries_[heads_[positions[i + 2 * kAhead]] - 1]);
    if (i + kAhead < positions.size()) __builtin_prefetch(values(entries_[heads_[positions[i + kAhead]] - 1]));
    const Entry& first = entries_[heads_[positions[i]] - 1];
    if (first.next == 0) {
      std::memcpy(out, values(first), w * sizeof(float));
    } else if (entries_[first.next - 1].next == 0) {
      // Two lanes meet once in the tree, the lower on the left.
      const float* const left = values(first);
      const float* const right = values(entries_[first.next - 1]);
      for (size_t j = 0; j < w; ++j) out[j] = left[j] + right[j];
    } else {
      std::fill(leaf.begin(), leaf.end(), nullptr);
      for (const Entry* entry = &first;; entry = &entries_[entry->next - 1]) {
        leaf[static_cast<size_t>(lanes_[entry->lane].leaf)] = values(*entry);
        if (entry->next == 0) break;
      }
      for (size_t step = 1; step < leaf.size(); step *= 2) {
        for (size_t l = 0; l + step < leaf.size(); l += 2 * step) {
          if (leaf[l + step] == nullptr) continue;
          if (leaf[l] == nullptr) {
            leaf[l] = leaf[l + step];
            continue;
          }
          // The last sum goes where it is wanted.
          float* const to = l == 0 && 2 * step >= leaf.size() ? out : inner.data() + l * w;
          const float* const left = leaf[l];
          const float* const right = leaf[l + step];
          for (size_t j = 0; j < w; ++j) to[j] = left[j] + right[j];
          leaf[l] = to;
        }
      }
      if (leaf[0] != out) std::memcpy(out, leaf[0], w * sizeof(float));
    }
  }
}

template <int kWidth>
void RowUnion::WriteRows(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const {
  if (lanes_.size() == 1) return CopyRows<kWidth>(lanes_[0].*what, positions, width, out);
  SumRows<kWidth>(what, positions, width, out);
}

void RowUnion::Write(const float* Lane::*what, absl::Span<const uint32_t> positions, int width, float* out) const {
  switch (width) {  // loops whose length the compiler knows
    case 1:
      return WriteRows<1>(what, positions, width, out);
    case 2:
      return WriteRows<2>(what, positions, width, out);
    case 4:
      return WriteRows<4>(what, positions, width, out);
    case 8:
      return WriteRows<8>(what, positions, width, out);
    case 16:
      return WriteRows<16>(what, positions, width, out);
    case 32:
      return WriteRows<32>(what, positions, width, out);
    default:
      return WriteRows<0>(what, positions, width, out);
  }
}

}  // namespace weir
