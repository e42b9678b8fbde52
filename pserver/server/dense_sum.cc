#include "pserver/server/dense_sum.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "pserver/protocol/merge_gradients.h"

namespace weir {

absl::Status LaneTreeSum::Sum(absl::Span<const Gradient* const> parts, int lanes, absl::Span<float> out) const {
  std::vector<DenseRun> runs;
  runs.reserve(parts.size());
  for (const Gradient* part : parts) {
    runs.push_back({part->node, part->begin, absl::MakeConstSpan(part->values, static_cast<size_t>(part->count))});
  }
  return SumDense(std::move(runs), lanes, out);
}

absl::Status SumInArrivalOrder::Sum(absl::Span<const Gradient* const> parts, int /*lanes*/,
                                    absl::Span<float> out) const {
  std::vector<const Gradient*> all(parts.begin(), parts.end());
  std::sort(all.begin(), all.end(), [](const Gradient* a, const Gradient* b) { return a->arrival < b->arrival; });
  std::fill(out.begin(), out.end(), 0.0f);
  for (const Gradient* g : all) {
    for (int64_t i = 0; i < g->count; ++i) out[static_cast<size_t>(g->begin + i)] += g->values[i];
  }
  return absl::OkStatus();
}

}  // namespace weir
