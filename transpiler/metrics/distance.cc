// rmse and mae: root of the mean square, and mean, of the distances between prediction and label. Measures of the same
// names: with plain sums by lane.
#include <cmath>
#include <cstdint>
#include <limits>

#include "framework/base/status_macros.h"
#include "transpiler/metrics/rules.h"

namespace weir {
namespace {

MetricRule DistanceRule(bool squared) {
  return {.undefined = "a prediction is no number",
          .in_training = true,
          .add =
              [squared](const Judged& judged, SliceSums* sums) {
                const double error = static_cast<double>(judged.row[0]) - static_cast<double>(judged.label);
                sums->sums[0].Add(squared ? error * error : std::fabs(error), judged.weight);
              },
          .figures = [squared](const SliceSums& sums) -> std::vector<Figure> {
            const double mean = sums.sums[0].value() / sums.Examples();
            return {{"", squared ? std::sqrt(mean) : mean, true}};
          },
          .sums = 1};
}

MetricRule RmseRule(const v1::Metric&) { return DistanceRule(/*squared=*/true); }
REGISTER_METRIC(rmse, {.rule = RmseRule});

MetricRule MaeRule(const v1::Metric&) { return DistanceRule(/*squared=*/false); }
REGISTER_METRIC(mae, {.rule = MaeRule});

}  // namespace

// doubles: squares, distances. A prediction of several numbers has no distance, and the measure no figures.
MetricRule DistanceMeasure() {
  return {.add_lane = [](const JudgedLane& lane, SliceSums* sums) -> absl::Status {
            if (lane.classes != 1) {
              sums->doubles[0] = sums->doubles[1] = std::numeric_limits<double>::quiet_NaN();
              return absl::OkStatus();
            }
            const float* const p = lane.prediction.data<float>();
            for (int64_t i = 0; i < lane.examples; ++i) {
              ASSIGN_OR_RETURN(const double truth, LabelAt(lane.label, i));
              const double error = p[i] - truth;
              sums->doubles[0] += error * error;
              sums->doubles[1] += std::fabs(error);
            }
            return absl::OkStatus();
          },
          .figures = [](const SliceSums& sums) -> std::vector<Figure> {
            const auto n = static_cast<double>(sums.examples);
            const double rmse = std::sqrt(sums.doubles[0] / n);
            if (std::isnan(rmse)) return {};
            return {{"rmse", rmse, true}, {"mae", sums.doubles[1] / n, true}};
          },
          .doubles = 2};
}

}  // namespace weir
