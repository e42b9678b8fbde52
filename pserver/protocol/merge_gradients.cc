#include "pserver/protocol/merge_gradients.h"

#include <algorithm>
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

// Rows of one run that are yet to be merged.
struct Cursor {
  const RowRun* run;
  size_t at;
  size_t end;
  uint64_t key;  // of the row at `at`

  size_t Index() const { return run->order == nullptr ? at : run->order[at]; }
  void Load() { key = MixId(static_cast<uint64_t>(run->ids[Index()])); }
  // Returns the key of the last row.
  uint64_t LastKey() const {
    return MixId(static_cast<uint64_t>(run->ids[run->order == nullptr ? end - 1 : run->order[end - 1]]));
  }
};

// Returns the first position of the run whose key is not below `bound`, or, with `after`, is above it.
size_t PositionOf(const RowRun& run, uint64_t bound, bool after) {
  size_t low = 0, high = run.ids.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint64_t key = MixId(static_cast<uint64_t>(run.ids[run.order == nullptr ? middle : run.order[middle]]));
    if (after ? key <= bound : key < bound) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Returns cursors over the rows with keys in [first, last], ordered by first key.
std::vector<Cursor> CursorsOf(absl::Span<const RowRun> runs, uint64_t first, uint64_t last) {
  std::vector<Cursor> cursors;
  for (const RowRun& run : runs) {
    Cursor cursor{&run, PositionOf(run, first, /*after=*/false), PositionOf(run, last, /*after=*/true), 0};
    if (cursor.at >= cursor.end) continue;
    cursor.Load();
    cursors.push_back(cursor);
  }
  std::sort(cursors.begin(), cursors.end(), [](const Cursor& a, const Cursor& b) { return a.key < b.key; });
  return cursors;
}

// Returns true if the key ranges of the runs are disjoint, as for the parts of one push: nothing is added then.
bool LieApart(const std::vector<Cursor>& cursors) {
  for (size_t i = 1; i < cursors.size(); ++i) {
    if (cursors[i - 1].LastKey() >= cursors[i].key) return false;
  }
  return true;
}

// Rows of one id in the lane tree, each stored at the first lane of its node.
class RowsOfId {
 public:
  RowsOfId(int lanes, size_t width) : width_(width) {
    while (leaves_ < lanes) leaves_ *= 2;
    leaf_.assign(static_cast<size_t>(leaves_), nullptr);
  }

  // Returns false if there is a row at this lane already.
  bool Put(int lane, const float* row) {
    const float*& leaf = leaf_[static_cast<size_t>(lane)];
    if (leaf != nullptr) return false;
    leaf = row;
    if (present_ < 2) lanes_[present_] = lane;
    ++present_;
    return true;
  }
  // Takes all rows out. Returns the row if there is one, else writes their sum to `sum` and returns that.
  const float* Take(float* sum) {
    const int present = present_;
    present_ = 0;
    const float*& first = leaf_[static_cast<size_t>(lanes_[0])];
    if (present == 1) return std::exchange(first, nullptr);
    if (present > 2) return TakeTree(sum);
    // Two rows meet in one addition, the lower lanes on the left.
    const float*& second = leaf_[static_cast<size_t>(lanes_[1])];
    const bool ascending = lanes_[0] < lanes_[1];
    Add(ascending ? first : second, ascending ? second : first, static_cast<int64_t>(width_), sum);
    first = second = nullptr;
    return sum;
  }

 private:
  const float* TakeTree(float* sum) {
    // Each sum overwrites its left operand if that is a sum already, or takes new memory.
    inner_.resize(static_cast<size_t>(leaves_) * width_);
    for (int step = 1; step < leaves_; step *= 2) {
      for (int i = 0; i + step < leaves_; i += 2 * step) {
        const float*& left = leaf_[static_cast<size_t>(i)];
        const float*& right = leaf_[static_cast<size_t>(i) + static_cast<size_t>(step)];
        if (right == nullptr) continue;
        if (left == nullptr) {
          left = right;
        } else {
          float* const to = inner_.data() + static_cast<size_t>(i) * width_;
          Add(left, right, static_cast<int64_t>(width_), to);
          left = to;
        }
        right = nullptr;
      }
    }
    std::memcpy(sum, leaf_[0], width_ * sizeof(float));
    leaf_[0] = nullptr;
    return sum;
  }

  const size_t width_;
  int leaves_ = 1;
  std::vector<const float*> leaf_;  // by lane
  int present_ = 0;
  int lanes_[2] = {0, 0};  // first lanes of the first two rows
  std::vector<float> inner_;
};

// Moves the rows with the smallest key into `rows` and returns their id.
absl::StatusOr<int64_t> TakeSmallest(size_t width, std::vector<Cursor>* cursors, RowsOfId* rows) {
  uint64_t smallest = cursors->front().key;
  for (const Cursor& cursor : *cursors) smallest = std::min(smallest, cursor.key);
  int64_t id = 0;
  for (size_t i = 0; i < cursors->size();) {
    Cursor& cursor = (*cursors)[i];
    if (cursor.key != smallest) {
      ++i;
      continue;
    }
    const size_t index = cursor.Index();
    const LaneRange& node = cursor.run->node;
    id = cursor.run->ids[index];
    if (!rows->Put(node.begin, cursor.run->values + index * width)) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient of lanes [", node.begin, ", ", node.begin + node.count, ") brings id ", id, " twice"));
    }
    if (++cursor.at == cursor.end) {
      cursors->erase(cursors->begin() + static_cast<ptrdiff_t>(i));
    } else {
      cursor.Load();
      ++i;
    }
  }
  return id;
}

}  // namespace

absl::Status MergeRows(absl::Span<const RowRun> runs, int lanes, int width, uint64_t first, uint64_t last,
                       MergedRows* out) {
  out->ids.clear();
  out->grads.clear();
  const size_t floats = static_cast<size_t>(width);
  std::vector<Cursor> cursors = CursorsOf(runs, first, last);
  size_t rows = 0;
  for (const Cursor& cursor : cursors) rows += cursor.end - cursor.at;
  // The union is at most this long. `sums`, which grads point into, is sized for it once below and never moves.
  out->ids.reserve(rows);
  out->grads.reserve(rows);
  if (LieApart(cursors)) {
    for (const Cursor& cursor : cursors) {
      for (Cursor at = cursor; at.at < at.end; ++at.at) {
        const size_t index = at.Index();
        out->ids.push_back(at.run->ids[index]);
        out->grads.push_back(at.run->values + index * floats);
      }
    }
    return absl::OkStatus();
  }
  if (out->sums.size() < rows * floats) out->sums.resize(rows * floats);
  float* next_sum = out->sums.data();
  RowsOfId of_id(lanes, floats);
  while (!cursors.empty()) {
    ASSIGN_OR_RETURN(const int64_t id, TakeSmallest(floats, &cursors, &of_id));
    out->ids.push_back(id);
    out->grads.push_back(of_id.Take(next_sum));
    if (out->grads.back() == next_sum) next_sum += floats;
  }
  return absl::OkStatus();
}

}  // namespace weir
