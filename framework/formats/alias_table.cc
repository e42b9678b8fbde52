#include "framework/formats/alias_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "glog/logging.h"

namespace weir {

AliasTable::AliasTable(absl::Span<const double> weights)
    : keep_(weights.size(), std::numeric_limits<uint64_t>::max()), other_(weights.size()) {
  __extension__ using Wide = unsigned __int128;
  constexpr double kUnits = 4294967296.0;
  CHECK(!weights.empty() && weights.size() < size_t{1} << 31) << weights.size();
  const double largest = *std::max_element(weights.begin(), weights.end());
  // Rest of each number, in units of which a cell holds `cell`.
  std::vector<Wide> left(weights.size());
  uint64_t cell = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const uint64_t units = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(weights[i] / largest * kUnits)));
    left[i] = static_cast<Wide>(units) * weights.size();
    cell += units;
  }
  std::vector<uint32_t> small, large;
  for (size_t i = 0; i < weights.size(); ++i) {
    (left[i] < cell ? small : large).push_back(static_cast<uint32_t>(i));
  }
  while (!small.empty() && !large.empty()) {
    const uint32_t one = small.back(), from = large.back();
    small.pop_back();
    // Below 2^64, as left[one] is below `cell`.
    keep_[one] = static_cast<uint64_t>((left[one] << 64) / cell);
    other_[one] = from;
    left[from] -= cell - left[one];
    if (left[from] >= cell) continue;
    large.pop_back();
    small.push_back(from);
  }
  // The sums are exact: what is left over fills its own cell.
  for (const uint32_t i : large) other_[i] = i;
  for (const uint32_t i : small) other_[i] = i;
}

double Power(double x, double exponent) {
  CHECK(exponent >= 0 && exponent <= 16) << exponent;
  constexpr int kBits = 32;
  const double rounded = std::round(exponent * 4294967296.0);
  auto bits = static_cast<uint64_t>(rounded);
  double result = 1;
  for (uint64_t whole = bits >> kBits; whole > 0; --whole) result *= x;
  double root = x;
  for (int i = kBits - 1; i >= 0; --i) {
    root = std::sqrt(root);
    if ((bits >> i & 1) != 0) result *= root;
  }
  return result;
}

}  // namespace weir
