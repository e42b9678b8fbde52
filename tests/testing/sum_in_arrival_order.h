// Planted fault: a sum of dense gradients in their order of arrival, which differs from run to run. For tests that
// check that a comparison of digests fails.
#ifndef WEIR_TESTS_TESTING_SUM_IN_ARRIVAL_ORDER_H_
#define WEIR_TESTS_TESTING_SUM_IN_ARRIVAL_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "pserver/params/dense_sum.h"

namespace weir {

class SumInArrivalOrder : public DenseSum {
 public:
  absl::Status Sum(absl::Span<const Gradient* const> parts, int /*lanes*/, absl::Span<float> out) const override {
    std::vector<const Gradient*> all(parts.begin(), parts.end());
    std::sort(all.begin(), all.end(), [](const Gradient* a, const Gradient* b) { return a->arrival < b->arrival; });
    std::fill(out.begin(), out.end(), 0.0f);
    for (const Gradient* g : all) {
      for (int64_t i = 0; i < g->count; ++i) out[static_cast<size_t>(g->begin + i)] += g->values[i];
    }
    return absl::OkStatus();
  }
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_SUM_IN_ARRIVAL_ORDER_H_
