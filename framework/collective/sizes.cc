#include "framework/collective/sizes.h"

#include <algorithm>

namespace weir {

namespace {

constexpr int64_t kSliceAlignment = 64;

}  // namespace

bool GoesWhole(int64_t bytes, size_t element_bytes, int ranks) {
  return ranks > 1 && bytes <= kMostWholeBytes / (ranks - 1) && element_bytes > sizeof(uint16_t);
}

std::vector<int64_t> EvenSlices(int64_t count, size_t element_bytes, int ranks) {
  const int64_t unit = std::max<int64_t>(1, kSliceAlignment / static_cast<int64_t>(element_bytes));
  const int64_t units = (count + unit - 1) / unit;
  std::vector<int64_t> begins;
  for (int r = 0; r <= ranks; ++r) {
    // Not units * r / ranks, which could overflow.
    const int64_t before = units / ranks * r + std::min<int64_t>(r, units % ranks);
    begins.push_back(std::min(count, before * unit));
  }
  return begins;
}

}  // namespace weir
