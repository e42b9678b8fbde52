// Checks of a job's metrics, and of the settings that name them.
#ifndef WEIR_TRANSPILER_JOB_CHECK_METRICS_H_
#define WEIR_TRANSPILER_JOB_CHECK_METRICS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/metric.pb.h"
#include "proto/program.pb.h"
#include "transpiler/job/job.h"
#include "transpiler/job/metric_kind.h"

namespace weir {

// Returns the name of a metric: its own, or made of its kind ("ndcg@10").
std::string NameOf(const v1::Metric& metric);

// Returns what follows a part of a metric in the name of its figure: "[weight=w]" of a weighted metric that has no name
// of its own, else "".
std::string WeightInName(const v1::Metric& metric);

// Returns the kind of a metric that CheckMetrics has passed.
const MetricKind& MetricKindOf(const v1::Metric& metric);

// Settings of a metric that ranks examples of a group, or items of a catalogue.
struct RankedMetric {
  // The member of Metric.kind; "" for a metric that ranks nothing, whose settings have no field `key`.
  std::string kind = {};
  std::string key = {};
  int k = 0;
  bool may_have_catalogue = false;
  // Null unless it is set.
  const v1::Metric::Catalogue* catalogue = nullptr;
};
// Borrows the metric.
RankedMetric RankedOf(const v1::Metric& metric);

// Returns a value of Metric.by as it stands in the name of a figure, "auc[city=New_York]": a blank or a bracket would
// end the name in a line of figures.
std::string FigureValue(const std::string& value);

// Returns whether a loss names the variable as its label, sample weight, length or probability, so that data.dense
// leaves it as it is.
bool IsLabelOrWeight(const std::string& variable, const v1::JobConfig& job);

// Checks metric, train.early_stop and checkpoint.best_by. `schema`: variables of the data.
absl::Status CheckMetrics(const Job& job, const std::vector<v1::VarDesc>& schema);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_METRICS_H_
