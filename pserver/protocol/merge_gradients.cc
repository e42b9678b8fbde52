#include "pserver/protocol/merge_gradients.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "ops/vectorized.h"

namespace weir {

namespace {

// Elements added at a time: all nodes' pieces and their sums stay in the first-level cache.
constexpr int64_t kSegment = 1024;

WEIR_VECTORIZED void Add(const float* left, const float* right, int64_t n, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = left[i] + right[i];
}

// Trees of four and of eight whose leaves are all there, in one pass: what Add makes step by step.
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

// Of n nodes: whether each is added where it is in a full tree of n leaves.
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
    // A segment ends where any node's run ends.
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

absl::Status MergeRows(absl::Span<const RowRun> runs, int lanes, int width, uint64_t first, uint64_t last,
                       MergedRows* out) {
  out->ids.clear();
  out->grads.clear();
  int root = 1;
  while (root < lanes) root *= 2;

  struct Cursor {
    const RowRun* run;
    size_t at;
    size_t end;
    uint64_t key;
    size_t Index() const { return run->order == nullptr ? at : run->order[at]; }
    void Load() { key = MixId(static_cast<uint64_t>(run->ids[Index()])); }
  };
  std::vector<Cursor> cursors;
  size_t rows = 0;
  for (const RowRun& run : runs) {
    const auto key = [&run](size_t i) {
      return MixId(static_cast<uint64_t>(run.ids[run.order == nullptr ? i : run.order[i]]));
    };
    // First position whose key is not below (not at or below) the bound.
    const auto search = [&](uint64_t bound, bool after) {
      size_t low = 0, high = run.ids.size();
      while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const uint64_t k = key(middle);
        if (after ? k <= bound : k < bound) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    };
    Cursor cursor{&run, search(first, false), search(last, true), 0};
    if (cursor.at >= cursor.end) continue;
    rows += cursor.end - cursor.at;
    cursor.Load();
    cursors.push_back(cursor);
  }
  // The union is at most this long, so nothing moves once pointers lead here.
  out->ids.reserve(rows);
  out->grads.reserve(rows);
  // Runs one behind the other, as the parts of one push are: nothing is added.
  std::sort(cursors.begin(), cursors.end(), [](const Cursor& a, const Cursor& b) { return a.key < b.key; });
  bool apart = true;
  for (size_t i = 1; i < cursors.size(); ++i) {
    const Cursor& before = cursors[i - 1];
    const size_t end = before.run->order == nullptr ? before.end - 1 : before.run->order[before.end - 1];
    apart &= MixId(static_cast<uint64_t>(before.run->ids[end])) < cursors[i].key;
  }
  if (apart) {
    for (const Cursor& cursor : cursors) {
      for (Cursor at = cursor; at.at < at.end; ++at.at) {
        const size_t index = at.Index();
        out->ids.push_back(at.run->ids[index]);
        out->grads.push_back(at.run->values + index * static_cast<size_t>(width));
      }
    }
    return absl::OkStatus();
  }
  if (cursors.size() > 1 && out->sums.size() < rows * static_cast<size_t>(width)) {
    out->sums.resize(rows * static_cast<size_t>(width));
  }
  float* next_sum = out->sums.data();

  std::vector<const float*> leaf(static_cast<size_t>(root), nullptr);
  std::vector<float> inner;
  while (!cursors.empty()) {
    uint64_t smallest = cursors[0].key;
    for (const Cursor& cursor : cursors) smallest = std::min(smallest, cursor.key);
    int present = 0;
    int64_t id = 0;
    int leaves[2] = {0, 0};
    for (size_t i = 0; i < cursors.size();) {
      Cursor& cursor = cursors[i];
      if (cursor.key != smallest) {
        ++i;
        continue;
      }
      const size_t index = cursor.Index();
      id = cursor.run->ids[index];
      const int place = cursor.run->node.begin;
      if (leaf[static_cast<size_t>(place)] != nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("gradient of lanes [", place, ", ",
                                                       place + cursor.run->node.count, ") brings id ", id, " twice"));
      }
      leaf[static_cast<size_t>(place)] = cursor.run->values + index * static_cast<size_t>(width);
      if (present < 2) leaves[present] = place;
      ++present;
      if (++cursor.at == cursor.end) {
        cursors.erase(cursors.begin() + static_cast<ptrdiff_t>(i));
      } else {
        cursor.Load();
        ++i;
      }
    }
    const float* sum = leaf[static_cast<size_t>(leaves[0])];
    if (present == 1) {
      leaf[static_cast<size_t>(leaves[0])] = nullptr;
    } else {
      if (present == 2) {
        // Two nodes meet once in the tree, the lower lanes on the left.
        const int low = std::min(leaves[0], leaves[1]), high = std::max(leaves[0], leaves[1]);
        Add(leaf[static_cast<size_t>(low)], leaf[static_cast<size_t>(high)], width, next_sum);
        leaf[static_cast<size_t>(low)] = leaf[static_cast<size_t>(high)] = nullptr;
      } else {
        // The first sum goes where the result will stand; each later one overwrites its left side or starts anew.
        inner.resize(static_cast<size_t>(root) * static_cast<size_t>(width));
        for (int step = 1; step < root; step *= 2) {
          for (int i = 0; i + step < root; i += 2 * step) {
            const float*& left = leaf[static_cast<size_t>(i)];
            const float*& right = leaf[static_cast<size_t>(i + step)];
            if (right == nullptr) continue;
            if (left == nullptr) {
              left = right;
            } else {
              float* const to = inner.data() + static_cast<size_t>(i) * static_cast<size_t>(width);
              Add(left, right, width, to);
              left = to;
            }
            right = nullptr;
          }
        }
        std::memcpy(next_sum, leaf[0], static_cast<size_t>(width) * sizeof(float));
        leaf[0] = nullptr;
      }
      sum = next_sum;
      next_sum += width;
    }
    out->ids.push_back(id);
    out->grads.push_back(sum);
  }
  return absl::OkStatus();
}

}  // namespace weir
