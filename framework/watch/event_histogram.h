// Distribution of floats, as TensorBoard's histogram pages show it.
#ifndef WEIR_FRAMEWORK_WATCH_EVENT_HISTOGRAM_H_
#define WEIR_FRAMEWORK_WATCH_EVENT_HISTOGRAM_H_

#include <vector>

#include "absl/types/span.h"

namespace weir {

struct EventHistogram {
  // All figures are 0 if there are no values.
  double min = 0;
  double max = 0;
  double num = 0;  // values
  double sum = 0;
  double sum_squares = 0;
  // counts[i] values lie between limits[i - 1], or `min`, and limits[i]. Limits increase.
  std::vector<double> limits;
  std::vector<double> counts;
};

// Counts the finite values; NaN and infinities are left out. Each power of two has four buckets; empty buckets side by
// side are merged into one.
EventHistogram MakeEventHistogram(absl::Span<const float> values);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_EVENT_HISTOGRAM_H_
