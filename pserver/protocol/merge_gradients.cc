#include "pserver/protocol/merge_gradients.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "ops/vectorized.h"

namespace weir {

namespace {

// Elements added at a time, so that the pieces of all nodes and their sums stay in the first-level cache.
constexpr int64_t kSegment = 1024;
// Nodes above one leaf.
constexpr size_t kMostLevels = 32;
// First step of the search around the place where a row should be.
constexpr size_t kNear = 16;
// At most so many rows are sorted by insertion.
constexpr ptrdiff_t kFew = 16;

WEIR_VECTORIZED void Add(const float* left, const float* right, int64_t n, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = left[i] + right[i];
}

// Add the leaves of full trees of four and of eight in one pass, in the order in which Add would add them step by step.
WEIR_VECTORIZED void AddFour(const float* const* leaf, int64_t n, float* out) {
  const float *const a = leaf[0], *const b = leaf[1], *const c = leaf[2], *const d = leaf[3];
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}
WEIR_VECTORIZED void AddEight(const float* const* leaf, int64_t n, float* out) {
  const float *const a = leaf[0], *const b = leaf[1], *const c = leaf[2], *const d = leaf[3];
  const float *const e = leaf[4], *const f = leaf[5], *const g = leaf[6], *const h = leaf[7];
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    out[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
  }
}

// Returns whether `adds` are the additions of a full tree of n leaves.
bool IsFullTree(const std::vector<LaneAdd>& adds, size_t n) {
  return adds.size() + 1 == n && std::all_of(adds.begin(), adds.end(), [](const LaneAdd& add) {
           return add.right - add.left == (add.right & -add.right);
         });
}

}  // namespace

absl::Status SumDense(std::vector<DenseRun> runs, int lanes, absl::Span<float> out) {
  CHECK(!runs.empty());
  std::sort(runs.begin(), runs.end(), [](const DenseRun& a, const DenseRun& b) {
    return a.node.begin != b.node.begin ? a.node.begin < b.node.begin : a.begin < b.begin;
  });
  const int64_t count = static_cast<int64_t>(out.size());
  std::vector<LaneRange> nodes;
  std::vector<size_t> first_run;
  int64_t covered = count;
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool new_node = nodes.empty() || !(nodes.back() == runs[i].node);
    const int64_t expected = new_node ? 0 : covered;
    if ((new_node && covered != count) || runs[i].begin != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient of lanes [", runs[i].node.begin, ", ", runs[i].node.begin + runs[i].node.count,
                       ") has a piece at element ", runs[i].begin, " where one at ", expected,
                       " was expected; pieces must cover ", count, " elements once"));
    }
    if (new_node) {
      nodes.push_back(runs[i].node);
      first_run.push_back(i);
    }
    covered = expected + static_cast<int64_t>(runs[i].values.size());
  }
  if (covered != count) {
    return absl::InvalidArgumentError(absl::StrCat("gradient of lanes [", nodes.back().begin, ", ",
                                                   nodes.back().begin + nodes.back().count, ") has ", covered, " of ",
                                                   count, " elements"));
  }
  const std::vector<LaneAdd> adds = TreeAdds(nodes, lanes);
  const bool full = IsFullTree(adds, nodes.size()) && (nodes.size() == 4 || nodes.size() == 8);
  std::vector<float> sums(adds.empty() || full ? 0 : nodes.size() * kSegment);
  std::vector<size_t> at = first_run;
  std::vector<const float*> piece(nodes.size());
  for (int64_t begin = 0; begin < count;) {
    // A segment ends where the run of any node ends.
    int64_t n = std::min(kSegment, count - begin);
    for (size_t i = 0; i < nodes.size(); ++i) {
      while (runs[at[i]].begin + static_cast<int64_t>(runs[at[i]].values.size()) <= begin) ++at[i];
      const DenseRun& run = runs[at[i]];
      piece[i] = run.values.data() + (begin - run.begin);
      n = std::min(n, run.begin + static_cast<int64_t>(run.values.size()) - begin);
    }
    float* const to = out.data() + begin;
    if (full) {
      (nodes.size() == 8 ? AddEight : AddFour)(piece.data(), n, to);
      begin += n;
      continue;
    }
    for (const LaneAdd& add : adds) {
      float* const sum = add.left == 0 ? to : sums.data() + add.left * kSegment;
      Add(piece[add.left], piece[add.right], n, sum);
      piece[add.left] = sum;
    }
    if (piece[0] != to) std::memcpy(to, piece[0], static_cast<size_t>(n) * sizeof(float));
    begin += n;
  }
  return absl::OkStatus();
}

namespace {

using KeyedRow = MergedRows::KeyedRow;

// Rows [begin, end) of a run, in the order of their keys; at least one.
struct Stretch {
  const RowRun* run;
  size_t begin, end;
  uint64_t first, last;  // keys

  size_t Index(size_t i) const { return run->order == nullptr ? i : run->order[i]; }
  uint64_t KeyAt(size_t i) const { return MixId(static_cast<uint64_t>(run->ids[Index(i)])); }
};

// Returns the first position of the run whose key is not below `bound`, or, with `after`, is above it. Keys are spread
// evenly, so that it is near where the bound lies between the first and the last key.
size_t PositionOf(const RowRun& run, uint64_t bound, bool after) {
  const auto key_at = [&run](size_t i) {
    return MixId(static_cast<uint64_t>(run.ids[run.order == nullptr ? i : run.order[i]]));
  };
  const auto is_before = [&](size_t i) { return after ? key_at(i) <= bound : key_at(i) < bound; };
  const size_t rows = run.ids.size();
  if (rows == 0 || !is_before(0)) return 0;
  if (is_before(rows - 1)) return rows;
  const uint64_t least = key_at(0);
  const double part = static_cast<double>(bound - least) / static_cast<double>(key_at(rows - 1) - least);
  const size_t guess = std::min(static_cast<size_t>(part * static_cast<double>(rows)), rows - 1);
  // The position lies behind row `low`, and is not behind row `high`.
  size_t low = 0, high = rows - 1;
  if (is_before(guess)) {
    low = guess;
    for (size_t step = kNear; low + step < high; step *= 2) {
      if (!is_before(low + step)) {
        high = low + step;
        break;
      }
      low += step;
    }
  } else {
    high = guess;
    for (size_t step = kNear; low + step < high; step *= 2) {
      if (is_before(high - step)) {
        low = high - step;
        break;
      }
      high -= step;
    }
  }
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (is_before(middle) ? low : high) = middle;
  }
  return high;
}

// Returns the rows with keys in [first, last], ordered by the first key of each run.
std::vector<Stretch> StretchesOf(absl::Span<const RowRun> runs, uint64_t first, uint64_t last) {
  std::vector<Stretch> stretches;
  for (const RowRun& run : runs) {
    Stretch stretch{&run, PositionOf(run, first, /*after=*/false), PositionOf(run, last, /*after=*/true), 0, 0};
    if (stretch.begin >= stretch.end) continue;
    stretch.first = stretch.KeyAt(stretch.begin);
    stretch.last = stretch.KeyAt(stretch.end - 1);
    stretches.push_back(stretch);
  }
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.first < b.first; });
  return stretches;
}

// Returns true if the key ranges of the runs are disjoint, as for the parts of one push: nothing is added then.
bool LieApart(const std::vector<Stretch>& stretches) {
  for (size_t i = 1; i < stretches.size(); ++i) {
    if (stretches[i - 1].last >= stretches[i].first) return false;
  }
  return true;
}

// Sorts rows by key; rows of one key stay in their order.
void SortFew(KeyedRow* begin, KeyedRow* end) {
  if (end - begin > kFew) {
    std::stable_sort(begin, end, [](const KeyedRow& a, const KeyedRow& b) { return a.key < b.key; });
    return;
  }
  for (KeyedRow* at = begin + 1; at < end; ++at) {
    const KeyedRow row = *at;
    KeyedRow* to = at;
    for (; to > begin && to[-1].key > row.key; --to) *to = to[-1];
    *to = row;
  }
}

// Writes all rows to memory.sorted, ascending by key, those of one key ascending by lane. Keys are spread evenly: each
// row goes straight to a bucket, with one other on average, which is then sorted. With 16 runs MergeRows takes half of
// the time that it takes with a tree of losers, whose comparisons no processor foresees.
void SortByKey(std::vector<Stretch>* stretches, MergedRows::Memory* memory) {
  std::sort(stretches->begin(), stretches->end(),
            [](const Stretch& a, const Stretch& b) { return a.run->node.begin < b.run->node.begin; });
  size_t rows = 0;
  uint64_t least = UINT64_MAX, most = 0;
  for (const Stretch& stretch : *stretches) {
    rows += stretch.end - stretch.begin;
    least = std::min(least, stretch.first);
    most = std::max(most, stretch.last);
  }
  const int buckets_width = static_cast<int>(std::bit_width(rows - 1));
  const int shift = std::max(0, static_cast<int>(std::bit_width(most - least)) - buckets_width);
  // [b]: at first the number of rows in bucket b - 1, then the place of the next row of bucket b.
  memory->places.assign((size_t{1} << buckets_width) + 1, 0);
  memory->unsorted.resize(rows);
  memory->sorted.resize(rows);
  // Rows out of order, which would be a mistake of whoever made the run, end up in a wrong bucket, but in one.
  const uint64_t last_bucket = (uint64_t{1} << buckets_width) - 1;
  const auto bucket_of = [=](uint64_t key) { return std::min((key - least) >> shift, last_bucket); };
  KeyedRow* next = memory->unsorted.data();
  for (uint32_t i = 0; i < stretches->size(); ++i) {
    const Stretch& stretch = (*stretches)[i];
    for (size_t j = stretch.begin; j < stretch.end; ++j) {
      const KeyedRow row = {stretch.KeyAt(j), i, static_cast<uint32_t>(stretch.Index(j))};
      ++memory->places[bucket_of(row.key) + 1];
      *next++ = row;
    }
  }
  for (size_t b = 1; b < memory->places.size(); ++b) memory->places[b] += memory->places[b - 1];
  for (const KeyedRow& row : memory->unsorted) memory->sorted[memory->places[bucket_of(row.key)]++] = row;
  uint32_t begin = 0;
  for (size_t b = 0; b + 1 < memory->places.size(); ++b) {
    const uint32_t end = memory->places[b];
    if (end - begin > 1) SortFew(memory->sorted.data() + begin, memory->sorted.data() + end);
    begin = end;
  }
}

// Rows of one id in the lane tree, each at the first lane of its node.
class RowsOfId {
 public:
  explicit RowsOfId(size_t width) : width_(width) {}

  // Returns false if the row before is at this lane, too. Requires: no row before is at a higher lane.
  bool Put(int lane, const float* row) {
    if (!rows_.empty() && rows_.back().lane == lane) return false;
    rows_.push_back({lane, row});
    return true;
  }
  // Takes all rows out. Returns the row if there is one, else writes their sum to `sum` and returns that.
  const float* Take(float* sum) {
    if (rows_.size() == 1) {
      const float* const row = rows_[0].row;
      rows_.clear();
      return row;
    }
    // Two neighbours are added at the node above both of them: the lower it is, the earlier. `left_` are those that
    // wait for what comes on their right, each to be added at a lower node than the one before.
    left_.clear();
    for (const Row& row : rows_) {
      const int level =
          left_.empty() ? 0 : static_cast<int>(std::bit_width(static_cast<uint32_t>(row.lane ^ left_.back().lane)));
      while (left_.size() > 1 && left_.back().level < level) AddLast(sum);
      left_.push_back({row.lane, row.row, level});
    }
    while (left_.size() > 1) AddLast(sum);
    rows_.clear();
    return sum;
  }

 private:
  struct Row {
    int lane;
    const float* row;
    int level = 0;  // of the node at which the row is added to the one before
  };

  // Adds the last of `left_` to the one before. Sums of the first one go to `sum`.
  void AddLast(float* sum) {
    const Row last = left_.back();
    left_.pop_back();
    const size_t at = left_.size() - 1;
    if (inner_.empty()) inner_.resize(kMostLevels * width_);
    float* const to = at == 0 ? sum : inner_.data() + (at - 1) * width_;
    Add(left_[at].row, last.row, static_cast<int64_t>(width_), to);
    left_[at].row = to;
  }

  const size_t width_;
  std::vector<Row> rows_, left_;
  std::vector<float> inner_;
};

}  // namespace

absl::Status MergeRows(absl::Span<const RowRun> runs, int width, uint64_t first, uint64_t last, MergedRows* out) {
  out->ids.clear();
  out->grads.clear();
  const size_t floats = static_cast<size_t>(width);
  std::vector<Stretch> stretches = StretchesOf(runs, first, last);
  size_t rows = 0;
  for (const Stretch& stretch : stretches) rows += stretch.end - stretch.begin;
  // The union is at most this long. `sums`, which grads point into, is sized for it once below and never moves.
  out->ids.reserve(rows);
  out->grads.reserve(rows);
  if (LieApart(stretches)) {
    for (const Stretch& stretch : stretches) {
      for (size_t i = stretch.begin; i < stretch.end; ++i) {
        const size_t index = stretch.Index(i);
        out->ids.push_back(stretch.run->ids[index]);
        out->grads.push_back(stretch.run->values + index * floats);
      }
    }
    return absl::OkStatus();
  }
  if (out->sums.size() < rows * floats) out->sums.resize(rows * floats);
  float* next_sum = out->sums.data();
  SortByKey(&stretches, &out->memory);
  RowsOfId of_id(floats);
  const KeyedRow* const end = out->memory.sorted.data() + rows;
  for (const KeyedRow* row = out->memory.sorted.data(); row < end;) {
    const uint64_t key = row->key;
    const int64_t id = stretches[row->run].run->ids[row->row];
    for (; row < end && row->key == key; ++row) {
      const RowRun& run = *stretches[row->run].run;
      if (!of_id.Put(run.node.begin, run.values + row->row * floats)) {
        return absl::InvalidArgumentError(absl::StrCat("gradient of lanes [", run.node.begin, ", ",
                                                       run.node.begin + run.node.count, ") brings id ", id, " twice"));
      }
    }
    out->ids.push_back(id);
    out->grads.push_back(of_id.Take(next_sum));
    if (out->grads.back() == next_sum) next_sum += floats;
  }
  return absl::OkStatus();
}

}  // namespace weir
