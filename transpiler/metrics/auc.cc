// auc and gauc: exact, by the order of all examples or of those of a group. Measure auc: by counting positives (labels
// of one half and more) and negatives in equal buckets of the prediction; pairs within one bucket count half, and the
// figure has a bound of the error that this makes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/metrics/rules.h"

namespace weir {
namespace {

constexpr size_t kAucBuckets = 65536;

size_t AucBucket(float p) {
  // NaN and everything below 0 count as 0.
  if (!(p > 0)) return 0;
  return std::min(static_cast<size_t>(std::min(p, 1.0f) * kAucBuckets), kAucBuckets - 1);
}

double GroupAucOf(const ScoredGroup& group) { return CountPairs(group.examples, group.weights).Auc(); }

MetricRule AucRule(const v1::Metric&) { return RuleOfGroups("", "one class is missing", GroupAucOf); }
REGISTER_METRIC(auc, {.rule = AucRule});

MetricRule GroupAucRule(const v1::Metric& metric) {
  const v1::Metric::GroupAuc& gauc = metric.gauc();
  MetricRule rule = RuleOfGroups(gauc.key(), "no group has both classes", GroupAucOf);
  if (gauc.weight() == v1::Metric::GroupAuc::EXAMPLES) {
    rule.group_weight = [](const ScoredGroup& group) { return group.Weight(); };
  }
  if (gauc.weight() == v1::Metric::GroupAuc::POSITIVES) {
    rule.group_weight = [](const ScoredGroup& group) { return group.PositiveWeight(); };
  }
  return rule;
}
REGISTER_METRIC(gauc, {.rule = GroupAucRule});

// counts: negatives and positives of each bucket.
absl::Status AddToAucBuckets(const JudgedLane& lane, SliceSums* sums) {
  if (lane.label.size() != lane.prediction.size()) {
    return absl::InvalidArgumentError(absl::StrCat("label ", ShapeString(lane.label.dims()),
                                                   " is not one for each number of prediction ",
                                                   ShapeString(lane.prediction.dims())));
  }
  const float* const p = lane.prediction.data<float>();
  for (int64_t i = 0; i < lane.label.size(); ++i) {
    ASSIGN_OR_RETURN(const double truth, LabelAt(lane.label, i));
    if (std::isnan(truth)) continue;  // Loss.label_may_be_missing
    ++sums->counts[2 * AucBucket(p[i]) + (truth >= 0.5 ? 1 : 0)];
  }
  return absl::OkStatus();
}

std::vector<Figure> BucketAucFigures(const SliceSums& sums) {
  // 128 bits, since the pairs of 10^11 examples do not fit into 64.
  __int128 twice_ordered = 0, within = 0;
  int64_t negatives_below = 0, all_positives = 0;
  for (size_t b = 0; b < kAucBuckets; ++b) {
    const int64_t negatives = sums.counts[2 * b], positives = sums.counts[2 * b + 1];
    twice_ordered += static_cast<__int128>(positives) * (2 * static_cast<__int128>(negatives_below) + negatives);
    within += static_cast<__int128>(positives) * negatives;
    negatives_below += negatives;
    all_positives += positives;
  }
  const double pairs = static_cast<double>(all_positives) * static_cast<double>(negatives_below);
  Figure auc{.name = "auc",
             .value = std::numeric_limits<double>::quiet_NaN(),
             .undefined = all_positives == 0 ? "no example has label 1" : "every example has label 1"};
  if (pairs != 0) {
    auc.value = static_cast<double>(twice_ordered) / 2 / pairs;
    auc.error = static_cast<double>(within) / 2 / pairs;
  }
  return {std::move(auc)};
}

}  // namespace

MetricRule BucketAucMeasure() {
  return {.add_lane = AddToAucBuckets, .figures = BucketAucFigures, .counts = 2 * kAucBuckets};
}

}  // namespace weir
