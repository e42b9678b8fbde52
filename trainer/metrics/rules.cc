#include "trainer/metrics/rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr char kNoPositives[] = "no group has an example with label 1";

using Group = absl::Span<const Scored>;
using Parts = std::vector<FigurePart>;

double Ratio(double x, double y) { return y == 0 ? kNan : x / y; }

// Mean over the groups that have a figure, each with one weight.
MetricRule OfGroups(const std::string& key, const char* undefined, std::function<double(Group)> of_group) {
  return {.undefined = undefined, .key = key, .of_group = std::move(of_group), .weight = [](Group) { return 1.0; }};
}

MetricRule Gauc(const v1::Metric::GroupAuc& gauc) {
  MetricRule rule =
      OfGroups(gauc.key(), "no group has both classes", [](Group group) { return CountPairs(group).Auc(); });
  if (gauc.weight() == v1::Metric::GroupAuc::EXAMPLES) rule.weight = [](Group group) { return double(group.size()); };
  if (gauc.weight() == v1::Metric::GroupAuc::POSITIVES) {
    rule.weight = [](Group group) { return static_cast<double>(CountPairs(group).positives); };
  }
  return rule;
}

SliceSums* WithSums(SliceSums* sums, size_t n) {
  if (sums->sums.size() < n) sums->sums.resize(n);
  return sums;
}
SliceSums* WithCounts(SliceSums* sums, size_t n) {
  if (sums->counts.size() < n) sums->counts.resize(n);
  return sums;
}
double SumOf(const SliceSums& sums, size_t i) { return i < sums.sums.size() ? sums.sums[i].value() : 0; }

bool HasNan(const Judged& judged) {
  return std::any_of(judged.row, judged.row + judged.classes, [](float p) { return std::isnan(p); });
}
// A prediction of one number is a class of two.
int64_t ClassOf(const Judged& judged, double threshold) {
  if (judged.classes == 1) return static_cast<double>(judged.row[0]) >= threshold;
  return std::max_element(judged.row, judged.row + judged.classes) - judged.row;
}
// -1: the label is no class.
int64_t LabelClass(const Judged& judged) {
  if (judged.classes == 1) return IsPositive(judged.label);
  return judged.label >= 0 && judged.label < static_cast<float>(judged.classes) ? static_cast<int64_t>(judged.label)
                                                                                : -1;
}

MetricRule Accuracy(int k) {
  return {.one_number = false,
          .add =
              [k](const Judged& judged, SliceSums* sums) {
                WithCounts(sums, 1);
                const int64_t label = LabelClass(judged);
                // A NaN is a wrong prediction.
                if (HasNan(judged)) return;
                if (judged.classes == 1) {
                  sums->counts[0] += k > 1 || ClassOf(judged, 0.5) == label;
                  return;
                }
                if (label < 0) return;
                const float own = judged.row[label];
                int64_t before = 0;
                for (int64_t c = 0; c < judged.classes; ++c) {
                  before += judged.row[c] > own || (judged.row[c] == own && c < label);
                }
                sums->counts[0] += before < k;
              },
          .figures = [](const SliceSums& sums) -> Parts {
            return {{"", Ratio(static_cast<double>(sums.counts[0]), static_cast<double>(sums.examples))}};
          },
          .counts = 1};
}

// counts: a matrix [classes, classes], by label and predicted class.
MetricRule ConfusionRule(double threshold) {
  return {.undefined = "no example has the class, or none is predicted to have it",
          .one_number = false,
          .add =
              [threshold](const Judged& judged, SliceSums* sums) {
                const int64_t classes = std::max<int64_t>(judged.classes, 2), label = LabelClass(judged);
                WithCounts(sums, static_cast<size_t>(classes * classes));
                if (label < 0 || HasNan(judged)) return;
                ++sums->counts[static_cast<size_t>(label * classes + ClassOf(judged, threshold))];
              },
          .figures = [](const SliceSums& sums) -> Parts {
            const auto classes = static_cast<size_t>(std::llround(std::sqrt(double(sums.counts.size()))));
            double precision = 0, recall = 0, f1 = 0, judged = 0;
            for (size_t c = classes == 2 ? 1 : 0; c < classes; ++c) {
              double of_label = 0, predicted = 0;
              for (size_t other = 0; other < classes; ++other) {
                of_label += static_cast<double>(sums.counts[c * classes + other]);
                predicted += static_cast<double>(sums.counts[other * classes + c]);
              }
              if (classes > 2 && of_label == 0) continue;
              const auto right = static_cast<double>(sums.counts[c * classes + c]);
              // With several classes, one that is never predicted has precision 0.
              precision += classes > 2 && predicted == 0 ? 0 : Ratio(right, predicted);
              recall += Ratio(right, of_label);
              f1 += Ratio(2 * right, of_label + predicted);
              ++judged;
            }
            Parts parts = {{".precision", Ratio(precision, judged)},
                           {".recall", Ratio(recall, judged)},
                           {".f1", Ratio(f1, judged)}};
            if (classes > 2) return parts;
            constexpr const char* kCells[] = {".tn", ".fp", ".fn", ".tp"};
            for (size_t cell = 0; cell < 4; ++cell) {
              const bool mistakes = cell == 1 || cell == 2;
              parts.push_back({.suffix = kCells[cell],
                               .value = static_cast<double>(sums.counts[cell]),
                               .lower_is_better = mistakes,
                               .is_count = true});
            }
            return parts;
          }};
}

// sums: predictions, labels, then both for each bucket. counts: examples by bucket.
MetricRule CalibrationRule(int buckets) {
  return {.undefined = "the labels add up to 0, or a prediction is not from 0 to 1",
          .add =
              [buckets](const Judged& judged, SliceSums* sums) {
                WithSums(WithCounts(sums, static_cast<size_t>(buckets) + 1), 2 * (static_cast<size_t>(buckets) + 1));
                const float p = judged.row[0];
                // The last one is for what is no probability.
                const bool probability = p >= 0 && p <= 1;
                const int bucket = !probability ? buckets
                                                : std::min(buckets - 1, static_cast<int>(static_cast<double>(p) *
                                                                                         static_cast<double>(buckets)));
                ++sums->counts[static_cast<size_t>(bucket)];
                sums->sums[2 * static_cast<size_t>(bucket)].Add(p);
                sums->sums[2 * static_cast<size_t>(bucket) + 1].Add(judged.label);
              },
          .figures = [buckets](const SliceSums& sums) -> Parts {
            DoubleSum predictions, labels;
            double error = 0;
            for (size_t b = 0; b <= static_cast<size_t>(buckets); ++b) {
              predictions.Merge(sums.sums[2 * b]);
              labels.Merge(sums.sums[2 * b + 1]);
              error += std::fabs(SumOf(sums, 2 * b) - SumOf(sums, 2 * b + 1));
            }
            const bool probabilities = sums.counts[static_cast<size_t>(buckets)] == 0;
            return {{"", Ratio(predictions.value(), labels.value())},
                    {".error", probabilities ? Ratio(error, static_cast<double>(sums.examples)) : kNan, true}};
          },
          .counts = static_cast<size_t>(buckets) + 1,
          .sums = 2 * (static_cast<size_t>(buckets) + 1)};
}

double LogLoss(double label, double p) { return -label * std::log(p) - (1 - label) * std::log1p(-p); }

MetricRule NormalizedEntropyRule() {
  return {.undefined = "all labels are equal, or a prediction is no number",
          .add =
              [](const Judged& judged, SliceSums* sums) {
                constexpr double kLeast = 1e-7;
                WithSums(sums, 2);
                const double p = std::clamp(static_cast<double>(judged.row[0]), kLeast, 1 - kLeast);
                sums->sums[0].Add(LogLoss(judged.label, p));
                sums->sums[1].Add(judged.label);
              },
          .figures = [](const SliceSums& sums) -> Parts {
            const auto n = static_cast<double>(sums.examples);
            const double mean = SumOf(sums, 1) / n;
            if (!(mean > 0 && mean < 1)) return {{"", kNan}};
            return {{"", SumOf(sums, 0) / n / LogLoss(mean, mean), true}};
          },
          .sums = 2};
}

MetricRule DistanceRule(bool squared) {
  return {.undefined = "a prediction is no number",
          .add =
              [squared](const Judged& judged, SliceSums* sums) {
                const double error = static_cast<double>(judged.row[0]) - static_cast<double>(judged.label);
                WithSums(sums, 1)->sums[0].Add(squared ? error * error : std::fabs(error));
              },
          .figures = [squared](const SliceSums& sums) -> Parts {
            const double mean = SumOf(sums, 0) / static_cast<double>(sums.examples);
            return {{"", squared ? std::sqrt(mean) : mean, true}};
          },
          .sums = 1};
}

// sums: figures of the items.
MetricRule OfCatalogue(int k, std::function<double(int64_t)> gain) {
  return {.undefined = "no example has label 1",
          .one_number = false,
          .gain = std::move(gain),
          .last_rank = k,
          .figures = [](const SliceSums& sums) -> Parts {
            return {{"", Ratio(SumOf(sums, 0), static_cast<double>(sums.examples))}};
          },
          .sums = 1};
}
double One(int64_t) { return 1; }

}  // namespace

size_t MetricRule::CountsOf(int64_t classes) const {
  const auto side = static_cast<size_t>(std::max<int64_t>(classes, 2));
  return counts == 0 && sums == 0 ? side * side : counts;
}

size_t MetricRule::SliceBytes(int64_t classes) const {
  return sizeof(SliceSums) + CountsOf(classes) * sizeof(int64_t) + sums * sizeof(DoubleSum);
}

SliceSums MetricRule::NoExamples(int64_t classes) const {
  SliceSums none;
  none.counts.resize(CountsOf(classes));
  none.sums.resize(sums);
  return none;
}

MetricRule RuleOf(const v1::Metric& metric) {
  switch (metric.kind_case()) {
    case v1::Metric::kAuc:
      return OfGroups("", "one class is missing", [](Group group) { return CountPairs(group).Auc(); });
    case v1::Metric::kGauc:
      return Gauc(metric.gauc());
    case v1::Metric::kNdcg: {
      const bool exponential = metric.ndcg().gain() == v1::Metric::Ndcg::EXPONENTIAL;
      const int k = metric.ndcg().k();
      if (metric.ndcg().has_catalogue()) {
        return OfCatalogue(k, [](int64_t rank) { return 1 / std::log2(static_cast<double>(rank + 1)); });
      }
      return OfGroups(metric.ndcg().key(), "no group has a label above 0",
                      [k, exponential](Group group) { return Ndcg(group, k, exponential); });
    }
    case v1::Metric::kHitRate: {
      const int k = metric.hit_rate().k();
      if (metric.hit_rate().has_catalogue()) return OfCatalogue(k, One);
      return OfGroups(metric.hit_rate().key(), kNoPositives, [k](Group group) { return HitRate(group, k); });
    }
    case v1::Metric::kRecall: {
      const int k = metric.recall().k();
      if (metric.recall().has_catalogue()) return OfCatalogue(k, One);
      return OfGroups(metric.recall().key(), kNoPositives, [k](Group group) { return RecallAt(group, k); });
    }
    case v1::Metric::kMrr: {
      const int k = metric.mrr().k();
      if (metric.mrr().has_catalogue()) {
        return OfCatalogue(k, [](int64_t rank) { return 1 / static_cast<double>(rank); });
      }
      return OfGroups(metric.mrr().key(), kNoPositives, [k](Group group) { return ReciprocalRank(group, k); });
    }
    case v1::Metric::kAccuracy:
      return Accuracy(metric.accuracy().k());
    case v1::Metric::kConfusion:
      return ConfusionRule(metric.confusion().threshold());
    case v1::Metric::kCalibration:
      return CalibrationRule(metric.calibration().buckets());
    case v1::Metric::kNormalizedEntropy:
      return NormalizedEntropyRule();
    case v1::Metric::kRmse:
      return DistanceRule(/*squared=*/true);
    case v1::Metric::kMae:
      return DistanceRule(/*squared=*/false);
    case v1::Metric::KIND_NOT_SET:
      break;
  }
  LOG(FATAL) << "a metric without a kind has passed the checks";
}

}  // namespace weir
