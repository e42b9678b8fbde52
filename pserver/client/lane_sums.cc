#include "pserver/client/lane_sums.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "framework/base/stable_hash.h"
#include "ops/vectorized.h"

namespace weir {

namespace {

// Rows are asked for so many entries ahead of being read, and of wide ones the first lines.
constexpr size_t kAhead = 24;
constexpr size_t kLinesAhead = 2;
// Levels of a tree whose leaves are numbered by an int.
constexpr int kMostLevels = 32;

// Places of the order of one task, where several threads make a union: what is known of them fits the first-level
// cache. And the fewest rows that are worth several threads.
constexpr size_t kRange = size_t{2} << 10;
constexpr size_t kFewestRows = size_t{16} << 10;

template <int kWidth>
inline void AddRow(const float* left, const float* right, size_t width, float* out) {
  const size_t w = kWidth > 0 ? static_cast<size_t>(kWidth) : width;
  WEIR_INDEPENDENT
  for (size_t j = 0; j < w; ++j) out[j] = left[j] + right[j];
}

}  // namespace

bool RowUnion::TakeLanes(const LaneRange& node, absl::Span<const StepChannel::LaneRows> lanes, size_t* total) {
  leaves_ = node.count;
  lanes_.clear();
  *total = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const StepChannel::LaneRows& lane = lanes[i];
    if (lane.lane < node.begin || lane.lane >= node.begin + node.count || lane.value->ids.empty()) continue;
    if (lane.value->step_rows.size() != lane.value->ids.size()) return false;
    // Lanes come ascending.
    if (!lanes_.empty() && lanes_.back().leaf >= lane.lane - node.begin) return false;
    lanes_.push_back({lane.lane - node.begin, i});
    *total += lane.value->ids.size();
  }
  return true;
}

bool RowUnion::Build(const LaneRange& node, absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order,
                     absl::Span<const int64_t> ids, ThreadPool* pool) {
  size_t total = 0;
  if (!TakeLanes(node, lanes, &total)) return false;
  if (lanes_.empty()) {
    positions_.clear();
    return true;
  }
  positions_.resize(order.size());
  begins_.resize(order.size() + 1);
  entries_.resize(total);
  if (pool != nullptr && pool->threads() > 0 && total >= kFewestRows) return BuildOn(pool, lanes, order);
  return BuildAlone(lanes, order, ids.size());
}

bool RowUnion::BuildAlone(absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order, size_t ids) {
  // Count the rows of each id, then compute where they begin in the order, then place them.
  known_.assign(ids, {0, 0});
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    for (const int32_t position : lanes[lanes_[l].given].value->step_rows) {
      if (position < 0 || static_cast<size_t>(position) >= ids) return false;
      Known& known = known_[static_cast<size_t>(position)];
      // Within a lane each id stands once.
      if (known.lane == l + 1) return false;
      known.lane = l + 1;
      ++known.entries;
    }
  }
  size_t rows = 0;
  uint32_t begin = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Known& known = known_[order[i]];
    const uint32_t entries = known.entries;
    positions_[rows] = order[i];
    begins_[rows] = known.entries = begin;
    begin += entries;
    rows += entries != 0;
  }
  begins_[rows] = begin;
  positions_.resize(rows);
  begins_.resize(rows + 1);
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    const std::vector<int32_t>& step_rows = lanes[lanes_[l].given].value->step_rows;
    for (uint32_t r = 0; r < step_rows.size(); ++r) {
      entries_[known_[static_cast<size_t>(step_rows[r])].entries++] = {l, r};
    }
  }
  return true;
}

bool RowUnion::BuildOn(ThreadPool* pool, absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order) {
  const size_t size = order.size(), ranges = (size + kRange - 1) / kRange;
  std::atomic<bool> valid = true;  // relaxed: the end of each loop publishes it
  const auto for_each = [pool, &valid](size_t n, const auto& fn) {
    pool->ParallelFor(static_cast<int64_t>(n), [&](int64_t i) {
      if (!fn(static_cast<size_t>(i))) valid.store(false, std::memory_order_relaxed);
    });
    return valid.load(std::memory_order_relaxed);
  };
  places_.resize(size);
  known_.resize(size);
  if (dealt_.size() < lanes_.size()) dealt_.resize(lanes_.size());
  parts_.assign(ranges, {});
  for_each(ranges, [&](size_t range) {
    for (size_t i = range * kRange; i < std::min(size, (range + 1) * kRange); ++i) {
      places_[order[i]] = static_cast<uint32_t>(i);
    }
    return true;
  });
  const auto deal = [&](size_t l) { return Deal(lanes[lanes_[l].given].value->step_rows, ranges, &dealt_[l]); };
  if (!for_each(lanes_.size(), deal)) return false;
  if (!for_each(ranges, [&](size_t range) { return CountRange(range, &parts_[range]); })) return false;
  Part end;
  for (Part& part : parts_) {
    part.rows_before = end.rows;
    part.entries_before = end.entries;
    end.rows += part.rows;
    end.entries += part.entries;
  }
  for_each(ranges, [&](size_t range) {
    FillRange(range, order, parts_[range]);
    return true;
  });
  begins_[end.rows] = static_cast<uint32_t>(end.entries);
  positions_.resize(end.rows);
  begins_.resize(end.rows + 1);
  return true;
}

bool RowUnion::Deal(const std::vector<int32_t>& step_rows, size_t ranges, Dealt* dealt) const {
  const size_t n = step_rows.size();
  dealt->places.resize(n);
  dealt->rows.resize(n);
  dealt->begins.assign(ranges + 1, 0);
  for (size_t r = 0; r < n; ++r) {
    const int32_t position = step_rows[r];
    if (position < 0 || static_cast<size_t>(position) >= places_.size()) return false;
    dealt->places[r] = places_[static_cast<size_t>(position)];
    ++dealt->begins[dealt->places[r] / kRange];
  }
  uint32_t begin = 0;
  for (uint32_t& of_range : dealt->begins) begin += std::exchange(of_range, begin);
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t place = dealt->places[r];
    dealt->rows[dealt->begins[place / kRange]++] = {place, r};
  }
  // Dealing has moved each begin to the end of its range.
  for (size_t range = ranges; range > 0; --range) dealt->begins[range] = dealt->begins[range - 1];
  dealt->begins[0] = 0;
  return true;
}

bool RowUnion::CountRange(size_t range, Part* part) {
  const size_t begin = range * kRange, end = std::min(known_.size(), begin + kRange);
  std::fill(known_.begin() + static_cast<ptrdiff_t>(begin), known_.begin() + static_cast<ptrdiff_t>(end), Known{0, 0});
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    const Dealt& dealt = dealt_[l];
    for (size_t e = dealt.begins[range]; e < dealt.begins[range + 1]; ++e) {
      Known& known = known_[dealt.rows[e].place];
      // Within a lane each id stands once.
      if (known.lane == l + 1) return false;
      known.lane = l + 1;
      ++known.entries;
    }
    part->entries += dealt.begins[range + 1] - dealt.begins[range];
  }
  for (size_t i = begin; i < end; ++i) part->rows += known_[i].entries != 0;
  return true;
}

void RowUnion::FillRange(size_t range, const IdOrder& order, const Part& part) {
  size_t row = part.rows_before;
  uint32_t begin = static_cast<uint32_t>(part.entries_before);
  // Stores each id as if it had rows, which spares a branch. What follows the last one that has belongs to the next
  // range.
  for (size_t i = range * kRange; row < part.rows_before + part.rows; ++i) {
    Known& known = known_[i];
    const uint32_t entries = known.entries;
    positions_[row] = order[i];
    begins_[row] = known.entries = begin;
    begin += entries;
    row += entries != 0;
  }
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    const Dealt& dealt = dealt_[l];
    for (size_t e = dealt.begins[range]; e < dealt.begins[range + 1]; ++e) {
      entries_[known_[dealt.rows[e].place].entries++] = {l, dealt.rows[e].row};
    }
  }
}

RowUnion::Range RowUnion::At(const IdOrder& order, absl::Span<const int64_t> ids, size_t begin, size_t end) const {
  const auto place_of = [&](size_t i) {
    if (i == order.size()) return positions_.size();
    const auto key = [&](uint32_t position) { return MixId(static_cast<uint64_t>(ids[position])); };
    return static_cast<size_t>(
        std::lower_bound(positions_.begin(), positions_.end(), key(order[i]),
                         [&](uint32_t position, uint64_t least) { return key(position) < least; }) -
        positions_.begin());
  };
  return {place_of(begin), place_of(end)};
}

void RowUnion::WriteIds(absl::Span<const int64_t> ids, Range range, int64_t* out) const {
  for (size_t i = range.begin; i < range.end; ++i) *out++ = ids[positions_[i]];
}

template <int kWidth>
void RowUnion::WriteRows(const std::vector<const float*>& values, Range range, int width, float* out) const {
  const size_t w = static_cast<size_t>(kWidth > 0 ? kWidth : width);
  const size_t lines = std::clamp<size_t>(w * sizeof(float) / 64, 1, kLinesAhead);
  const Entry* const entries = entries_.data();
  const auto row = [&](size_t e) { return values[entries[e].lane] + entries[e].row * w; };
  // Sums of nodes inside the tree, each where its first leaf stands among the rows at hand.
  std::vector<float> inner;
  size_t asked = begins_[range.begin];
  const size_t last = begins_[range.end];
  for (size_t i = range.begin; i < range.end; ++i, out += w) {
    const size_t begin = begins_[i], end = begins_[i + 1];
    for (const size_t to = std::min(last, end + kAhead); asked < to; ++asked) {
      const char* const line = reinterpret_cast<const char*>(row(asked));
      for (size_t k = 0; k < lines; ++k) __builtin_prefetch(line + 64 * k);
    }
    if (end - begin == 1) {
      std::memcpy(out, row(begin), w * sizeof(float));
      continue;
    }
    if (end - begin == 2) {
      // Two lanes meet once in the tree, the lower on the left.
      AddRow<kWidth>(row(begin), row(begin + 1), w, out);
      continue;
    }
    if (end - begin == 8 && leaves_ == 8) {
      const float *const a = row(begin), *const b = row(begin + 1), *const c = row(begin + 2),
                         *const d = row(begin + 3);
      const float *const e = row(begin + 4), *const f = row(begin + 5), *const g = row(begin + 6),
                         *const h = row(begin + 7);
      WEIR_INDEPENDENT
      for (size_t j = 0; j < w; ++j) {
        out[j] = ((a[j] + b[j]) + (c[j] + d[j])) + ((e[j] + f[j]) + (g[j] + h[j]));
      }
      continue;
    }
    // Leaves come from left to right. One waits on the stack until its right neighbour is whole: until a leaf comes
    // that meets them further up, where the highest bit in which the numbers of neighbours differ says how far up they
    // meet.
    inner.resize(static_cast<size_t>(kMostLevels) * w);
    const float* stack[kMostLevels + 1];
    int level[kMostLevels + 1];  // at which it meets the one below it
    int depth = 0;
    const auto add_top = [&](float* to) {
      AddRow<kWidth>(stack[depth - 2], stack[depth - 1], w, to);
      stack[--depth - 1] = to;
    };
    int before = 0;
    for (size_t e = begin; e < end; ++e) {
      const int leaf = lanes_[entries[e].lane].leaf;
      if (depth > 0) {
        const int meets = std::bit_width(static_cast<uint32_t>(leaf ^ before));
        while (depth > 1 && level[depth - 1] < meets) add_top(inner.data() + static_cast<size_t>(depth - 2) * w);
        level[depth] = meets;
      }
      stack[depth++] = row(e);
      before = leaf;
    }
    // NOLINTNEXTLINE(bugprone-infinite-loop): add_top lowers depth
    while (depth > 2) add_top(inner.data() + static_cast<size_t>(depth - 2) * w);
    add_top(out);  // the last sum goes where it is wanted
  }
}

void RowUnion::Write(absl::Span<const StepChannel::LaneRows> lanes, bool counts, Range range, int width,
                     float* out) const {
  std::vector<const float*> values;
  for (const Lane& lane : lanes_) {
    const StepChannel::LaneRows& given = lanes[lane.given];
    values.push_back(counts ? given.counts->data<float>() : given.value->values.data<float>());
  }
  switch (width) {  // loops whose length the compiler knows
    case 1:
      return WriteRows<1>(values, range, width, out);
    case 2:
      return WriteRows<2>(values, range, width, out);
    case 4:
      return WriteRows<4>(values, range, width, out);
    case 8:
      return WriteRows<8>(values, range, width, out);
    case 16:
      return WriteRows<16>(values, range, width, out);
    case 32:
      return WriteRows<32>(values, range, width, out);
    default:
      return WriteRows<0>(values, range, width, out);
  }
}

bool StepUnions::Build(absl::Span<const LaneRange> nodes, absl::Span<const StepChannel::LaneRows> lanes,
                       const IdOrder& order, absl::Span<const int64_t> ids, std::vector<RowUnion>* unions,
                       ThreadPool* pool) {
  unions->resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!(*unions)[i].Build(nodes[i], lanes, order, ids, pool)) return false;
  }
  return true;
}

void StepUnions::Reset() {
  MutexLock lock(&mu_);
  made_ = false;
}

const std::vector<RowUnion>* StepUnions::Of(absl::Span<const LaneRange> nodes,
                                            absl::Span<const StepChannel::LaneRows> lanes, const IdOrder& order,
                                            absl::Span<const int64_t> ids, std::vector<RowUnion>* own,
                                            ThreadPool* pool) {
  {
    MutexLock lock(&mu_);
    if (!made_) {
      // Other tables wait for the unions in any case. The threads of the pool need no lock for their parts of them.
      if (!Build(nodes, lanes, order, ids, &unions_, pool)) return nullptr;
      lanes_.clear();
      step_rows_.clear();
      for (const StepChannel::LaneRows& lane : lanes) {
        const std::vector<int32_t>& rows = lane.value->step_rows;
        lanes_.push_back({lane.lane, rows.size()});
        step_rows_.insert(step_rows_.end(), rows.begin(), rows.end());
      }
      made_ = true;
      return &unions_;
    }
    bool same = lanes.size() == lanes_.size();
    size_t at = 0;
    for (size_t i = 0; i < lanes.size() && same; ++i) {
      const std::vector<int32_t>& rows = lanes[i].value->step_rows;
      same = lanes[i].lane == lanes_[i].lane && rows.size() == lanes_[i].rows &&
             std::equal(rows.begin(), rows.end(), step_rows_.begin() + static_cast<ptrdiff_t>(at));
      at += rows.size();
    }
    if (same) return &unions_;
  }
  return Build(nodes, lanes, order, ids, own, pool) ? own : nullptr;
}

}  // namespace weir
