// Publishes the figures of a training: entries in the registry of the process (framework/base/counters.h), of which
// /metrics and the job's page are made, and an event file for TensorBoard.
//
// Entries, all of them "trainer.<id>." and
//
//   steps, examples            counters of this trainer
//   step_time                  a histogram, microseconds of a step without its border
//   wait.data, wait.border     microseconds of waiting for batches (and rows pulled ahead), and of evaluations,
//                              checkpoints and digests between steps; wait.servers is counted by the client
//   loss, auc, calibration, normalized_entropy, examples_per_s, fraction, step
//                              gauges of the newest progress line
//   figure.<name>              gauges of its other figures
//   restarts, lost_seconds, repeated_steps, goodput
//                              gauges: how often the run went on after a death, and what that has cost (the chief's)
//   eval.loss, eval.auc, ...   gauges of the newest evaluation (the chief's)
#ifndef WEIR_TRAINER_PROGRESS_TRAINING_WATCH_H_
#define WEIR_TRAINER_PROGRESS_TRAINING_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/watch/event_log.h"
#include "proto/program.pb.h"
#include "trainer/metrics/metric_result.h"
#include "trainer/progress/training_point.h"

namespace weir {

struct Job;
class Session;

// Used by one thread, that of the training. Nothing in it can fail the training.
class TrainingWatch {
 public:
  struct Options {
    int trainer_id = 0;
    // Directory for an event file, "" for none.
    std::string tensorboard;
    // Steps between two histograms in the event file, of dense parameters, of the rows that a batch reads of tables,
    // and of the gradients of lane 0; 0: none.
    int64_t histogram_steps = 0;
    Clock* clock = Clock::Real();
  };
  // Errors of EventLog::Create.
  static absl::StatusOr<std::unique_ptr<TrainingWatch>> Create(const Options& options);

  // Writes the program's graph and the settings of the job into the event file. `step`: the first one.
  void Begin(const Job& job, const v1::ProgramDesc& program, int64_t step);
  // Counts a step with this trainer's examples. `session`: of worker 0, after the step, for histograms.
  void StepDone(int64_t step, int64_t examples, absl::Duration time, const Session& session);
  // Add time that passed between steps, and in waits for batches.
  void Border(absl::Duration time) { border_->Add(absl::ToInt64Microseconds(time)); }
  void Data(absl::Duration time) { data_->Add(absl::ToInt64Microseconds(time)); }
  void Point(const TrainingPoint& point);
  void Evaluation(int64_t step, const MetricResult& result);
  void Restarts(int64_t restarts, double lost_seconds, int64_t repeated_steps, double goodput);
  // Says in the event file how the training has ended.
  void End(bool ok);

 private:
  explicit TrainingWatch(const Options& options);
  Gauge* GaugeOf(const std::string& name);
  void Histograms(int64_t step, const Session& session);

  const Options o_;
  const std::string prefix_;
  Counter* const steps_;
  Counter* const examples_;
  Counter* const data_;
  Counter* const border_;
  Counter* const servers_;
  Histogram* const step_time_;
  absl::Time last_point_;
  int64_t last_data_ = 0, last_border_ = 0, last_servers_ = 0;
  std::vector<std::string> parameters_, gradients_;  // of the program; parameters: dense ones
  // Tables, and the variables with the rows that a batch reads of them.
  std::vector<std::pair<std::string, std::string>> rows_;
  std::unique_ptr<EventLog> events_;  // null: no event file
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_TRAINING_WATCH_H_
