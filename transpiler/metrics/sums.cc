#include "transpiler/metrics/sums.h"

#include <algorithm>
#include <cmath>

#include "framework/base/status_macros.h"

namespace weir {

void DoubleSum::Add(double x, float weight) {
  const float high = static_cast<float>(x);
  sum_.AddProduct(high, weight);
  if (std::isfinite(high)) sum_.AddProduct(static_cast<float>(x - static_cast<double>(high)), weight);
}

absl::Status DoubleSum::FromBytes(std::string_view bytes) {
  ASSIGN_OR_RETURN(sum_, ExactSum::FromBytes(bytes));
  return absl::OkStatus();
}

void SliceSums::Merge(const SliceSums& other) {
  examples += other.examples;
  counts.resize(std::max(counts.size(), other.counts.size()));
  for (size_t i = 0; i < other.counts.size(); ++i) counts[i] += other.counts[i];
  sums.resize(std::max(sums.size(), other.sums.size()));
  for (size_t i = 0; i < other.sums.size(); ++i) sums[i].Merge(other.sums[i]);
  doubles.resize(std::max(doubles.size(), other.doubles.size()));
  for (size_t i = 0; i < other.doubles.size(); ++i) doubles[i] += other.doubles[i];
  weights.resize(std::max(weights.size(), other.weights.size()));
  for (size_t i = 0; i < other.weights.size(); ++i) weights[i].Add(other.weights[i]);
}

}  // namespace weir
