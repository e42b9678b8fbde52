#include "framework/watch/event_histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace weir {
namespace {

// A bucket is the sign, the exponent and two bits of the mantissa of a float.
constexpr int kDroppedBits = 21;
constexpr size_t kBuckets = size_t{1} << (32 - kDroppedBits);
constexpr size_t kNegative = kBuckets / 2;

// Returns the place of a value among buckets that increase: those of negative values come first, backwards.
size_t BucketOf(float value) {
  const size_t bucket = std::bit_cast<uint32_t>(value) >> kDroppedBits;
  return bucket < kNegative ? kNegative + bucket : kBuckets - 1 - bucket;
}

// Returns the upper end of the bucket at a place.
double LimitOf(size_t place) {
  // The bound of a bucket of negative values is its end nearer to 0.
  const auto bucket = static_cast<uint32_t>(place < kNegative ? kBuckets - 1 - place : place - kNegative + 1);
  return std::bit_cast<float>(bucket << kDroppedBits);
}

}  // namespace

EventHistogram MakeEventHistogram(absl::Span<const float> values) {
  EventHistogram histogram;
  std::array<int64_t, kBuckets> counts = {};
  int64_t num = 0;
  float min = HUGE_VALF, max = -HUGE_VALF;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    ++num;
    min = std::min(min, value);
    max = std::max(max, value);
    histogram.sum += value;
    histogram.sum_squares += static_cast<double>(value) * value;
    ++counts[BucketOf(value)];
  }
  if (num == 0) return histogram;
  histogram.num = static_cast<double>(num);
  histogram.min = min;
  histogram.max = max;
  const size_t last = BucketOf(max);
  for (size_t place = BucketOf(min); place <= last; ++place) {
    const bool empty = counts[place] == 0;
    if (empty && !histogram.counts.empty() && histogram.counts.back() == 0) {
      histogram.limits.back() = LimitOf(place);
      continue;
    }
    histogram.limits.push_back(LimitOf(place));
    histogram.counts.push_back(static_cast<double>(counts[place]));
  }
  // The largest floats have no float above them.
  if (!std::isfinite(histogram.limits.back())) histogram.limits.back() = max;
  return histogram;
}

}  // namespace weir
