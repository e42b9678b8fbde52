// Kinds of metrics, registered by the member of v1::Metric.kind. Each is a file of transpiler/metrics, which registers
// what the checks of a job ask together with its arithmetic (REGISTER_METRIC of transpiler/metrics/rules.h).
#ifndef WEIR_TRANSPILER_JOB_METRIC_KIND_H_
#define WEIR_TRANSPILER_JOB_METRIC_KIND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/metric.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

struct MetricRule;  // transpiler/metrics/rules.h

struct MetricKind {
  // Texts that follow a metric's name in the names of its figures.
  std::vector<std::string> parts = {""};
  // Set if the figure of the metric's own name is best neither high nor low, and so ranks no evaluations: why, and what
  // can be compared in its place. "$0" stands for the name, "$1" for what follows a part in the name of a figure.
  std::string ranks_nothing = {};
  // False if the examples of a group cannot be weighted, since each has one place among the others. Those of a
  // catalogue can: each is a query by itself.
  bool weighs_groups = true;
  // Checks the settings of the kind, beside key, catalogue and the lower bound of k. Null: there is nothing to check.
  absl::Status (*check)(const Setting& metric, const v1::Metric& config) = nullptr;
  // Makes the arithmetic of a metric of this kind.
  MetricRule (*rule)(const v1::Metric& config) = nullptr;
};

inline KindRegistry<MetricKind>& MetricKinds() {
  static auto* const registry = new KindRegistry<MetricKind>("metric");
  return *registry;
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_METRIC_KIND_H_
