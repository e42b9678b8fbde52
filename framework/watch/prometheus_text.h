// Metrics of a process as Prometheus reads them: the text exposition format, version 0.0.4.
//
// Names of families follow from those of the entries (framework/base/counters.h):
//
//   trainer.0.push.messages     messages      weir_messages_total{method="push"}
//   trainer.0.push.bytes_out    bytes         weir_sent_bytes_total{method="push"}
//   trainer.0.push.bytes_in     bytes         weir_received_bytes_total{method="push"}
//   trainer.0.push.call_time    microseconds  weir_call_time_seconds{method="push"}         a histogram
//   trainer.0.wait.pull         microseconds  weir_wait_seconds_total{what="pull"}
//   trainer.0.skipped_steps     steps         weir_skipped_steps_total
//   trainer.0.loss              a gauge       weir_loss
//   trainer.0.figure.ndcg@10    a gauge       weir_train_figure{figure="ndcg@10"}
//   trainer.0.eval.auc          a gauge       weir_eval_figure{figure="auc"}
//   table.users.rows            rows          weir_table_rows{table="users"}
//   push.applied                steps         weir_push_applied_steps_total
//
// Times are in seconds. A counter has its unit and "_total" at the end, a gauge or a histogram only the unit bytes or
// seconds. Counters that count a present number (rows of a table) are gauges here.
#ifndef WEIR_FRAMEWORK_WATCH_PROMETHEUS_TEXT_H_
#define WEIR_FRAMEWORK_WATCH_PROMETHEUS_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/counters.h"

namespace weir {

// Names and values of labels. Values may be any text.
using PrometheusLabels = std::vector<std::pair<std::string, std::string>>;

// Content-Type of the text.
inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Returns the families of `entries`, sorted by name. Each sample has the labels `constant`. If these have `role` and
// `id`, an entry of another process than theirs ("server.3." in that of trainer 0) has its own role and id instead. If
// several entries have one family and the same labels, or one family has two kinds, the first counts.
std::string PrometheusText(absl::Span<const Counters::Entry> entries, const PrometheusLabels& constant);

// Returns the family weir_<name>_info, whose value is 1: what a process says about itself is in the labels.
std::string PrometheusInfo(std::string_view name, PrometheusLabels labels, const PrometheusLabels& constant);

// Returns the usual families of a process: process_cpu_seconds_total, process_resident_memory_bytes,
// process_virtual_memory_bytes, process_open_fds, process_max_fds, process_start_time_seconds. One that the system does
// not tell is left out.
std::string PrometheusProcess(const PrometheusLabels& constant);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_PROMETHEUS_TEXT_H_
