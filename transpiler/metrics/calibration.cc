// calibration: predictions beside labels, of all examples and by bucket of the prediction. normalized_entropy: mean
// logloss divided by that of the mean label as the prediction.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "framework/base/status_macros.h"
#include "transpiler/job/check_values.h"
#include "transpiler/metrics/rules.h"

namespace weir {
namespace {

constexpr int64_t kMostCalibrationBuckets = 10'000;

absl::Status CheckCalibration(const Setting& at, const v1::Metric& metric) {
  RETURN_IF_ERROR(AtLeast(at, "calibration.buckets", metric.calibration().buckets(), 1));
  return AtMost(at, "calibration.buckets", metric.calibration().buckets(), kMostCalibrationBuckets);
}

// sums: predictions and labels of each bucket. counts: examples by bucket. The last bucket is for predictions that are
// no probabilities.
MetricRule CalibrationRule(const v1::Metric& metric) {
  const auto buckets = static_cast<size_t>(metric.calibration().buckets());
  return {.undefined = "the labels add up to 0, or a prediction is not from 0 to 1",
          .in_training = true,
          .add =
              [buckets](const Judged& judged, SliceSums* sums) {
                const float p = judged.row[0];
                const bool probability = p >= 0 && p <= 1;
                const size_t bucket =
                    !probability ? buckets
                                 : std::min(buckets - 1,
                                            static_cast<size_t>(static_cast<double>(p) * static_cast<double>(buckets)));
                sums->Count(bucket, judged.weight);
                sums->sums[2 * bucket].Add(p, judged.weight);
                sums->sums[2 * bucket + 1].Add(judged.label, judged.weight);
              },
          .figures = [buckets](const SliceSums& sums) -> std::vector<Figure> {
            DoubleSum predictions, labels;
            double error = 0;
            for (size_t b = 0; b <= buckets; ++b) {
              predictions.Merge(sums.sums[2 * b]);
              labels.Merge(sums.sums[2 * b + 1]);
              error += std::fabs(sums.sums[2 * b].value() - sums.sums[2 * b + 1].value());
            }
            const bool probabilities = sums.CountAt(buckets) == 0;
            return {{"", Ratio(predictions.value(), labels.value())},
                    {".error", probabilities ? Ratio(error, sums.Examples()) : std::numeric_limits<double>::quiet_NaN(),
                     true}};
          },
          .counts = buckets + 1,
          .sums = 2 * (buckets + 1)};
}
REGISTER_METRIC(calibration, {.parts = {"", ".error"},
                              .ranks_nothing = "is best at 1, neither high nor low; $0.error$1 or normalized_entropy "
                                               "can be compared",
                              .check = CheckCalibration,
                              .rule = CalibrationRule});

double LogLoss(double label, double p) { return -label * std::log(p) - (1 - label) * std::log1p(-p); }

// normalized_entropy. sums: loglosses, labels.
MetricRule NormalizedEntropyRule(const v1::Metric&) {
  return {.undefined = "all labels are equal, or a prediction is no number",
          .two_classes = true,
          .in_training = true,
          .add =
              [](const Judged& judged, SliceSums* sums) {
                constexpr double kLeast = 1e-7;
                const double p = std::clamp(static_cast<double>(judged.row[0]), kLeast, 1 - kLeast);
                sums->sums[0].Add(LogLoss(judged.label, p), judged.weight);
                sums->sums[1].Add(judged.label, judged.weight);
              },
          .figures = [](const SliceSums& sums) -> std::vector<Figure> {
            const double n = sums.Examples();
            const double mean = sums.sums[1].value() / n;
            if (!(mean > 0 && mean < 1)) return {{"", std::numeric_limits<double>::quiet_NaN()}};
            return {{"", sums.sums[0].value() / n / LogLoss(mean, mean), true}};
          },
          .sums = 2};
}
REGISTER_METRIC(normalized_entropy, {.rule = NormalizedEntropyRule});

}  // namespace
}  // namespace weir
