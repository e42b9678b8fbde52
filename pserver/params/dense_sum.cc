#include "pserver/params/dense_sum.h"

#include <cstddef>
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

}  // namespace weir
