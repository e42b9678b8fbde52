// Rules of the metrics that a job names (proto/metric.proto): what each takes of an example, and what it makes of all.
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
  // Why there is no figure, if there is none: "no group has both classes".
  std::string undefined;
  // The prediction must be one number.
  bool one_number = true;

  // Of a metric of groups: the variable whose value is the group's; empty: a slice is one group.
  std::string key = {};
  // Figure of a group, NaN if it has none, and its weight in the mean over groups. Null for other metrics.
  std::function<double(absl::Span<const Scored>)> of_group = nullptr;
  std::function<double(absl::Span<const Scored>)> weight = nullptr;

  // Set for a metric of a catalogue: what an item of a rank, from 1, gains, and the last rank with a gain (0: no end).
  // Null for other metrics. The figure of an item is the mean over the ranks that it can have among equal products, and
  // 0 for one that is no candidate.
  std::function<double(int64_t)> gain = nullptr;
  int64_t last_rank = 0;

  // Set for a metric without groups: adds an example (null if it has a gain), and makes the figures of a slice.
  std::function<void(const Judged&, SliceSums*)> add = nullptr;
  std::function<std::vector<FigurePart>(const SliceSums&)> figures = nullptr;
  // Sizes of SliceSums' vectors. counts 0: a square of at least 4, of a matrix.
  size_t counts = 0, sums = 0;

  // Of another metric: returns the sums of no examples, for predictions of `classes` numbers.
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
