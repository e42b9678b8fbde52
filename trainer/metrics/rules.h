// Rules of the metrics that a job names (proto/metric.proto): how a metric adds an example to its sums, and computes
// its figures from them.
#ifndef WEIR_TRAINER_METRICS_RULES_H_
#define WEIR_TRAINER_METRICS_RULES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/metric.pb.h"
#include "trainer/metrics/ranking.h"
#include "trainer/metrics/sums.h"

namespace weir {

// A figure of a metric; `suffix` is what is appended to the metric's name: "" or ".error".
struct FigurePart {
  std::string suffix;
  double value = 0;
  bool lower_is_better = false;
  bool is_count = false;
};

struct MetricRule {
  // Reason for a missing figure: "no group has both classes".
  std::string undefined;
  // True if the prediction must be one number.
  bool one_number = true;

  // Variable whose value names the group, for a metric of groups; empty: a slice is one group.
  std::string key = {};
  // Figure of a group, NaN if it has none, and its weight in the mean over groups. Null for other metrics.
  std::function<double(absl::Span<const Scored>)> of_group = nullptr;
  std::function<double(absl::Span<const Scored>)> weight = nullptr;

  // Gain of an item by rank, from 1, and the last rank with a gain (0: no end), for a metric of a catalogue. Null for
  // other metrics. The figure of an item is the mean over the ranks that it can have among equal products, and 0 for
  // one that is no candidate.
  std::function<double(int64_t)> gain = nullptr;
  int64_t last_rank = 0;

  // Add an example (null if the metric has a gain), and make the figures of a slice. Null for metrics of groups.
  std::function<void(const Judged&, SliceSums*)> add = nullptr;
  std::function<std::vector<FigurePart>(const SliceSums&)> figures = nullptr;
  // Sizes of SliceSums' vectors. counts 0: a square of at least 4, of a matrix.
  size_t counts = 0, sums = 0;

  // Returns the sums of no examples, for predictions of `classes` numbers. Requires: a metric without groups.
  SliceSums NoExamples(int64_t classes) const;
  // Returns the bytes of the sums of one slice, for predictions of `classes` numbers.
  size_t SliceBytes(int64_t classes) const;

 private:
  size_t CountsOf(int64_t classes) const;
};

// Returns the rule of a metric whose kind is set.
MetricRule RuleOf(const v1::Metric& metric);

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_RULES_H_
