#include "trainer/statistics/quantile_sample.h"

#include <algorithm>

namespace weir {

void QuantileSample::Shrink() {
  if (kept_.size() <= kMost) return;
  std::nth_element(kept_.begin(), kept_.begin() + (kMost - 1), kept_.end());
  kept_.resize(kMost);
  limit_ = kept_.back().first;
}

std::vector<std::pair<uint64_t, double>> QuantileSample::Sorted() const {
  std::vector<std::pair<uint64_t, double>> sorted = kept_;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.size() > kMost) sorted.resize(kMost);
  return sorted;
}

std::vector<double> QuantileSample::Boundaries(int n) const {
  std::vector<double> values;
  for (const auto& [key, value] : Sorted()) values.push_back(value);
  std::sort(values.begin(), values.end());
  std::vector<double> boundaries;
  for (int i = 1; i < n && !values.empty(); ++i) {
    const double at = values[values.size() * static_cast<size_t>(i) / static_cast<size_t>(n)];
    if (at > (boundaries.empty() ? values[0] : boundaries.back())) boundaries.push_back(at);
  }
  return boundaries;
}

}  // namespace weir
