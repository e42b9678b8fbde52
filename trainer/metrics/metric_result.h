// Result of an evaluation: its figures, by name.
#ifndef WEIR_TRAINER_METRICS_METRIC_RESULT_H_
#define WEIR_TRAINER_METRICS_METRIC_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "transpiler/metrics/figure.h"

namespace weir {

struct MetricResult {
  int64_t samples = 0;
  // Samples whose loss is infinite or NaN.
  int64_t not_finite = 0;
  // Figures of the first loss that every evaluation has: "loss", the mean, and those of the kind of its predictions. A
  // loss without a label has no others.
  std::vector<Figure> measures = {};
  // Figures of the job's metrics.
  std::vector<Figure> figures = {};
  // train.early_stop: what is known with this evaluation.
  std::optional<v1::EarlyStopState> early_stop = {};

  // Returns the value of a measure; NaN if there is none of this name.
  double Measure(std::string_view name) const;
  // Returns all figures: the measures, and `figures`, of which one takes the place of a measure of the same name.
  std::vector<Figure> All() const;
  // Returns the figure that ranks results unless the job names another: "auc", or "loss" of a loss without auc.
  const char* DefaultFigure() const;
  // Returns a number that is larger for a better result: the figure of this name, negated where less is better. "" is
  // DefaultFigure(). nullopt: there is no such figure, or it is not finite.
  std::optional<double> RankBy(std::string_view name) const;
  // Returns whether `figures` has one of this name.
  bool HasFigure(std::string_view name) const;
  // Returns "loss=0.4613 auc=0.7712 auc_error=1.2e-06", with all figures. An undefined one has no number but a note at
  // the end: "loss=0.4613 (auc is undefined: no example has label 1)".
  std::string ToString() const;
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_METRIC_RESULT_H_
