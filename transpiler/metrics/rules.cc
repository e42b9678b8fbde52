#include "transpiler/metrics/rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// doubles: the loss. counts: examples without a finite one.
MetricRule LossMeasure() {
  return {.add_lane = [](const JudgedLane& lane, SliceSums* sums) -> absl::Status {
            const float* const losses = lane.loss.data<float>();
            const int64_t numbers = lane.loss.size();
            // A scalar is the mean over the examples.
            const int64_t examples_each = lane.loss.rank() == 0 ? lane.examples : 1;
            for (int64_t i = 0; i < numbers; ++i) {
              sums->doubles[0] += static_cast<double>(losses[i]) * static_cast<double>(examples_each);
              if (!std::isfinite(losses[i])) sums->counts[0] += examples_each;
            }
            return absl::OkStatus();
          },
          .figures = [](const SliceSums& sums) -> std::vector<Figure> {
            const auto n = static_cast<double>(sums.examples);
            return {{.name = "loss", .value = n == 0 ? 0 : sums.doubles[0] / n, .lower_is_better = true}};
          },
          .counts = 1,
          .doubles = 1};
}

}  // namespace

size_t MetricRule::CountsOf(int64_t classes) const {
  const auto side = static_cast<size_t>(std::max<int64_t>(classes, 2));
  return counts == 0 && sums == 0 && doubles == 0 ? side * side : counts;
}

size_t MetricRule::SliceBytes(int64_t classes) const {
  const size_t of_counts = weighted ? (1 + CountsOf(classes)) * sizeof(ExactSum) : CountsOf(classes) * sizeof(int64_t);
  return sizeof(SliceSums) + of_counts + sums * sizeof(DoubleSum) + doubles * sizeof(double);
}

SliceSums MetricRule::NoExamples(int64_t classes) const {
  SliceSums none;
  if (weighted) {
    none.weights.resize(1 + CountsOf(classes));
  } else {
    none.counts.resize(CountsOf(classes));
  }
  none.sums.resize(sums);
  none.doubles.resize(doubles);
  return none;
}

std::vector<MetricRule> MeasuresOf(v1::LossDesc::Kind kind) {
  switch (kind) {
    case v1::LossDesc::BINARY:
      return {LossMeasure(), BucketAucMeasure()};
    case v1::LossDesc::MULTI_CLASS:
      return {LossMeasure(), AccuracyMeasure()};
    case v1::LossDesc::REGRESSION:
      return {LossMeasure(), DistanceMeasure()};
  }
  return {LossMeasure()};
}

MetricRule RuleOfGroups(const std::string& key, const char* undefined,
                        std::function<double(const ScoredGroup&)> of_group) {
  return {.undefined = undefined, .key = key, .of_group = std::move(of_group), .group_weight = [](const ScoredGroup&) {
            return 1.0;
          }};
}

double Ratio(double x, double y) { return y == 0 ? std::numeric_limits<double>::quiet_NaN() : x / y; }

absl::StatusOr<double> LabelAt(const Tensor& label, int64_t i) {
  if (label.dtype() == v1::INT64) return static_cast<double>(label.data<int64_t>()[i]);
  if (label.dtype() == v1::FLOAT32) return label.data<float>()[i];
  return absl::InvalidArgumentError(
      absl::StrCat("label is ", v1::DType_Name(label.dtype()), ", expected FLOAT32 or INT64"));
}

}  // namespace weir
