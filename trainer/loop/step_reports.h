// Reports of the steps of a training: progress lines, metrics over the examples trained on, counts of skipped steps,
// warnings about batches.
#ifndef WEIR_TRAINER_LOOP_STEP_REPORTS_H_
#define WEIR_TRAINER_LOOP_STEP_REPORTS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "proto/program.pb.h"
#include "trainer/data/lane_reader.h"
#include "trainer/loop/lone_examples.h"
#include "trainer/metrics/job_metrics.h"
#include "trainer/progress/progress.h"
#include "trainer/session/session.h"

namespace weir {

class TrainingWatch;

// Not thread-safe.
class StepReports {
 public:
  struct Options {
    int trainer_id = 0;
    // Borrowed for the constructor.
    const v1::ProgramDesc* main = nullptr;
    // Plan for training.
    std::shared_ptr<const MetricPlan> metrics;
    // Arguments of Progress.
    std::FILE* out = nullptr;
    bool live = false;
    absl::Duration interval;
    Clock* clock = nullptr;
    // Borrowed; may be null.
    TrainingWatch* watch = nullptr;
  };
  explicit StepReports(const Options& options);

  Progress& progress() { return progress_; }
  int64_t skipped_steps() const { return skipped_; }
  // Returns this trainer's examples in the last step.
  int64_t examples() const { return examples_; }

  // Begins a step of several rounds whose metrics Done may have to take back: with several rounds the verdict comes
  // after they have been added.
  void BeginTentatively() { before_ = metrics_; }
  // Looks at the batches of a round, by worker and lane.
  void Look(int64_t step, const std::vector<std::vector<LaneBatch>>& batches);
  // Adds the predictions of the last round of a worker.
  absl::Status Add(Session* session) { return session->AddTrainMetrics(&metrics_); }
  // Ends the rounds of a step. `skipped`: it took no effect.
  void EndRounds(bool skipped);

  // Reports a step that is done. `scale`: loss scale of the next one, 0 without train.loss_scaling; `fraction`: part of
  // the run that is done.
  void Done(int64_t steps, const StepResult& result, double fraction, double scale);

 private:
  Counter* const skipped_steps_;
  LoneExamples lone_examples_;
  Progress progress_;
  JobMetrics metrics_;  // over the examples since the last progress line
  std::optional<JobMetrics> before_;
  int64_t skipped_ = 0, examples_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_STEP_REPORTS_H_
