// Selects the ids of a batch that a look-up reads: all, all without padding, or the last few of each example.
#ifndef WEIR_FRAMEWORK_TENSOR_ID_SELECTION_H_
#define WEIR_FRAMEWORK_TENSOR_ID_SELECTION_H_

#include <algorithm>
#include <cstdint>

#include "framework/tensor/tensor.h"

namespace weir {

struct IdSelection {
  // True if padding_id is treated as absent.
  bool has_padding = false;
  int64_t padding_id = 0;
  // Reads only the last `sequence` ids of each example that are not padding; 0 reads all. Requires one slot.
  int64_t sequence = 0;

  bool all() const { return !has_padding && sequence == 0; }
};

// Returns the index of the first of the values [begin, end) of an example that a sequence reads. The values after it
// may include padding.
inline int64_t SequenceBegin(const IdBatch& ids, const IdSelection& selection, int64_t begin, int64_t end) {
  if (!selection.has_padding) return std::max(begin, end - std::min(selection.sequence, end));
  int64_t first = end;
  for (int64_t left = selection.sequence; first > begin && left > 0; --first) {
    left -= ids.values[static_cast<size_t>(first - 1)] != selection.padding_id;
  }
  return first;
}

// Calls fn(begin, end) for the runs of selected values, in order. Offsets must rise from 0 to the number of values.
template <typename Fn>
void ForSelectedIds(const IdBatch& ids, const IdSelection& selection, Fn fn) {
  const auto is_padding = [&](int64_t i) {
    return selection.has_padding && ids.values[static_cast<size_t>(i)] == selection.padding_id;
  };
  const auto runs = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      if (is_padding(begin)) {
        ++begin;
        continue;
      }
      int64_t run_end = selection.has_padding ? begin + 1 : end;
      while (run_end < end && !is_padding(run_end)) ++run_end;
      fn(begin, run_end);
      begin = run_end;
    }
  };
  if (selection.sequence == 0) return runs(0, static_cast<int64_t>(ids.values.size()));
  for (size_t g = 0; g + 1 < ids.offsets.size(); ++g) {
    runs(SequenceBegin(ids, selection, ids.offsets[g], ids.offsets[g + 1]), ids.offsets[g + 1]);
  }
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_ID_SELECTION_H_
