// accuracy and confusion: the class of the highest probability beside the label. A prediction of one number is a class
// of two. Measure accuracy: of the largest of several numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/base/status_macros.h"
#include "transpiler/job/check_values.h"
#include "transpiler/metrics/rules.h"

namespace weir {
namespace {

constexpr int64_t kMostClasses = int64_t{1} << 20;

bool HasNan(const Judged& judged) {
  return std::any_of(judged.row, judged.row + judged.classes, [](float p) { return std::isnan(p); });
}
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

std::vector<Figure> ShareOfExamples(const char* name, const SliceSums& sums) {
  return {{name, Ratio(sums.CountAt(0), sums.Examples())}};
}

absl::Status CheckAccuracy(const Setting& at, const v1::Metric& metric) {
  RETURN_IF_ERROR(AtLeast(at, "accuracy.k", metric.accuracy().k(), 1));
  return AtMost(at, "accuracy.k", metric.accuracy().k(), kMostClasses);
}

// counts: right ones.
MetricRule AccuracyRule(const v1::Metric& metric) {
  return {.one_number = false,
          .in_training = true,
          .add =
              [k = metric.accuracy().k()](const Judged& judged, SliceSums* sums) {
                const int64_t label = LabelClass(judged);
                // A prediction that is no number is wrong.
                if (HasNan(judged)) return;
                if (judged.classes == 1) {
                  if (k > 1 || ClassOf(judged, 0.5) == label) sums->Count(0, judged.weight);
                  return;
                }
                if (label < 0) return;
                const float own = judged.row[label];
                int64_t before = 0;
                for (int64_t c = 0; c < judged.classes; ++c) {
                  before += judged.row[c] > own || (judged.row[c] == own && c < label);
                }
                if (before < k) sums->Count(0, judged.weight);
              },
          .figures = [](const SliceSums& sums) { return ShareOfExamples("", sums); },
          .counts = 1};
}
REGISTER_METRIC(accuracy, {.check = CheckAccuracy, .rule = AccuracyRule});

absl::Status CheckConfusion(const Setting& at, const v1::Metric& metric) {
  if (std::isfinite(metric.confusion().threshold())) return absl::OkStatus();
  return at.Error("confusion.threshold", "must be a number");
}

std::vector<Figure> ConfusionFigures(const SliceSums& sums) {
  const auto classes = static_cast<size_t>(std::llround(std::sqrt(double(sums.places()))));
  double precision = 0, recall = 0, f1 = 0, judged = 0;
  for (size_t c = classes == 2 ? 1 : 0; c < classes; ++c) {
    double of_label = 0, predicted = 0;
    for (size_t other = 0; other < classes; ++other) {
      of_label += sums.CountAt(c * classes + other);
      predicted += sums.CountAt(other * classes + c);
    }
    if (classes > 2 && of_label == 0) continue;
    const double right = sums.CountAt(c * classes + c);
    // One of several classes that is never predicted has precision 0.
    precision += classes > 2 && predicted == 0 ? 0 : Ratio(right, predicted);
    recall += Ratio(right, of_label);
    f1 += Ratio(2 * right, of_label + predicted);
    ++judged;
  }
  std::vector<Figure> figures = {
      {".precision", Ratio(precision, judged)}, {".recall", Ratio(recall, judged)}, {".f1", Ratio(f1, judged)}};
  if (classes > 2) return figures;
  constexpr const char* kCells[] = {".tn", ".fp", ".fn", ".tp"};
  for (size_t cell = 0; cell < 4; ++cell) {
    const bool mistakes = cell == 1 || cell == 2;
    const double count = sums.CountAt(cell);
    // A sum of weights may be no whole number.
    figures.push_back(
        {.name = kCells[cell], .value = count, .lower_is_better = mistakes, .is_count = count == std::floor(count)});
  }
  return figures;
}

// counts: a matrix [classes, classes], by label and predicted class.
MetricRule ConfusionRule(const v1::Metric& metric) {
  return {.undefined = "no example has the class, or none is predicted to have it",
          .one_number = false,
          .add =
              [threshold = metric.confusion().threshold()](const Judged& judged, SliceSums* sums) {
                const int64_t classes = std::max<int64_t>(judged.classes, 2), label = LabelClass(judged);
                if (label < 0 || HasNan(judged)) return;
                sums->Count(static_cast<size_t>(label * classes + ClassOf(judged, threshold)), judged.weight);
              },
          .figures = ConfusionFigures};
}
REGISTER_METRIC(confusion, {.parts = {".precision", ".recall", ".f1", ".tn", ".fp", ".fn", ".tp"},
                            .check = CheckConfusion,
                            .rule = ConfusionRule});

}  // namespace

// counts: right ones.
MetricRule AccuracyMeasure() {
  return {.add_lane = [](const JudgedLane& lane, SliceSums* sums) -> absl::Status {
            const float* row = lane.prediction.data<float>();
            for (int64_t i = 0; i < lane.examples; ++i, row += lane.classes) {
              ASSIGN_OR_RETURN(const double truth, LabelAt(lane.label, i));
              sums->counts[0] += std::max_element(row, row + lane.classes) - row == static_cast<int64_t>(truth);
            }
            return absl::OkStatus();
          },
          .figures = [](const SliceSums& sums) { return ShareOfExamples("accuracy", sums); },
          .counts = 1};
}

}  // namespace weir
