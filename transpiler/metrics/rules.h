// Rules of metrics: what each takes of an example, and what it makes of all. One file per kind or family of kinds.
//
// A metric is one that a job names (proto/metric.proto); a measure is what every evaluation has of the first loss
// without being asked.
#ifndef WEIR_TRANSPILER_METRICS_RULES_H_
#define WEIR_TRANSPILER_METRICS_RULES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"
#include "proto/metric.pb.h"
#include "proto/program.pb.h"
#include "transpiler/job/metric_kind.h"
#include "transpiler/metrics/figure.h"
#include "transpiler/metrics/ranking.h"
#include "transpiler/metrics/sums.h"

namespace weir {

struct MetricRule {
  // Why there is no figure, if there is none: "no group has both classes".
  std::string undefined;
  // The prediction must be one number.
  bool one_number = true;
  // The loss must predict probabilities of two classes.
  bool two_classes = false;
  // Cheap enough for the examples that the job trains on.
  bool in_training = false;
  // Examples have weights (Metric.weight). MetricPlan sets it.
  bool weighted = false;

  // Variable whose value names the group, for a metric of groups; empty: a slice is one group.
  std::string key = {};
  // Figure of a group, NaN if it has none, and its weight in the mean over groups. Null for other metrics.
  std::function<double(const ScoredGroup&)> of_group = nullptr;
  std::function<double(const ScoredGroup&)> group_weight = nullptr;

  // Set for a metric of a catalogue: what an item of a rank, from 1, gains, and the last rank with a gain (0: no end).
  // Null for other metrics. The figure of an item is the mean over the ranks that it can have among equal products, and
  // 0 for one that is no candidate.
  std::function<double(int64_t)> gain = nullptr;
  int64_t last_rank = 0;

  // Set for a metric without groups: adds an example (null if it has a gain), and makes the figures of a slice. The
  // name of a figure is what follows the metric's name: "" or ".error". A measure has add_lane in place of `add`, and
  // whole names. The sums have the sizes below.
  std::function<void(const Judged&, SliceSums*)> add = nullptr;
  std::function<absl::Status(const JudgedLane&, SliceSums*)> add_lane = nullptr;
  std::function<std::vector<Figure>(const SliceSums&)> figures = nullptr;
  // Sizes of SliceSums' vectors; SliceSums.places() is `counts`. All 0: counts are a square of at least 4, of a matrix.
  size_t counts = 0, sums = 0, doubles = 0;

  // Returns the sums of no examples, for predictions of `classes` numbers. Requires: a metric without groups.
  SliceSums NoExamples(int64_t classes) const;
  // Returns the bytes of the sums of one slice, for predictions of `classes` numbers.
  size_t SliceBytes(int64_t classes) const;

 private:
  size_t CountsOf(int64_t classes) const;
};

// Returns the measures of the first loss: the loss, whose count is the number of examples without a finite one, and
// what the kind of its predictions has besides.
std::vector<MetricRule> MeasuresOf(v1::LossDesc::Kind kind);
// Those that the losses of a kind have beside the loss: auc in equal buckets of the prediction; accuracy; rmse and mae.
MetricRule BucketAucMeasure();
MetricRule AccuracyMeasure();
MetricRule DistanceMeasure();

// For rules.
// Mean over the groups that have a figure, each with one weight.
MetricRule RuleOfGroups(const std::string& key, const char* undefined,
                        std::function<double(const ScoredGroup&)> of_group);
// NaN if y is 0.
double Ratio(double x, double y);
// A label of an example as a number. InvalidArgument if labels are neither FLOAT32 nor INT64.
absl::StatusOr<double> LabelAt(const Tensor& label, int64_t i);

struct MetricRegistrar {
  MetricRegistrar(const std::string& name, MetricKind kind) { MetricKinds().Register(name, std::move(kind)); }
};
// Use at namespace scope. `name`: the member of v1::Metric.kind.
#define REGISTER_METRIC(name, ...) static const ::weir::MetricRegistrar weir_metric_##name(#name, __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_METRICS_RULES_H_
