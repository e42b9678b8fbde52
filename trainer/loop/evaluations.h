// Evaluations on data.eval in the course of a run.
//
// Each trainer evaluates its streams and contributes the metrics; their merge is the result. In sync all trainers do so
// at the same border and wait for each other. In async a trainer contributes at a border of its own and trains on; the
// chief reports an evaluation when all contributions are there. Parameters move while it runs, so such a result is
// reported with a note and enters no checkpoint. The evaluation after the last step waits in both modes.
#ifndef WEIR_TRAINER_LOOP_EVALUATIONS_H_
#define WEIR_TRAINER_LOOP_EVALUATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/checkpoints/job_checkpoints.h"
#include "trainer/loop/deferred_error.h"
#include "trainer/loop/job_data.h"
#include "trainer/metrics/early_stop.h"
#include "trainer/metrics/job_metrics.h"
#include "trainer/metrics/metric_result.h"
#include "trainer/progress/progress.h"
#include "trainer/session/session.h"
#include "trainer/this_trainer.h"

namespace weir {

class TrainingWatch;

// Not thread-safe. An error of this trainer's evaluation is deferred; it then contributes nothing.
class Evaluations {
 public:
  struct Options {
    ThisTrainer trainer;
    // Borrowed.
    const JobData* data = nullptr;
    Session* session = nullptr;
    JobCheckpoints* checkpoints = nullptr;
    Progress* progress = nullptr;
    DeferredError* deferred = nullptr;
    // Gets the results of the chief. May be null.
    TrainingWatch* watch = nullptr;
    // Early stop of the job. Null: the job has none.
    EarlyStop* early_stop = nullptr;
    // Not null.
    std::shared_ptr<const MetricPlan> metrics;
    // Gives all trainers' parts of an evaluation, by trainer, to each that calls it with its own; none if the
    // evaluation has no result. For Run.
    std::function<absl::StatusOr<std::vector<std::string>>(std::string_view key, std::string mine)> exchange;
  };
  explicit Evaluations(Options options) : o_(std::move(options)) {}

  // Evaluates the parameters that the session has, after `step` steps; rows of tables at `version` of the servers.
  // Waits for all trainers; reports the result and adds it to a checkpoint of this step. `key`: of the exchange. A
  // request to stop cuts it short: it then has no result on any trainer, counts for nothing, and stopped() is true.
  absl::Status Run(std::string_view key, int64_t step, int64_t version);

  // Returns true if a request to stop cut the last Run short, on this or another trainer; all return the same.
  bool stopped() const { return stopped_; }

  // Async: evaluates, contributes the result under the step's number, and does not wait. An evaluation that a request
  // to stop cuts short is not reported.
  absl::Status Start(int64_t step, int64_t version);
  // Async: reports the evaluations whose contributions are complete, if this trainer is the chief.
  absl::Status ReportComplete();
  // Async, after the last step: completes and reports all evaluations. `open_at_chief`: open() of the chief.
  absl::Status Complete(absl::Span<const int64_t> open_at_chief);
  // Async: returns the steps of evaluations that this trainer has contributed to and not seen reported.
  const std::vector<int64_t>& open() const { return open_; }

  // Returns true if Run has evaluated at this step.
  bool Has(int64_t step) const { return result_step_ == step; }
  // Returns the newest result of Run; nullopt: none, or one without examples.
  const std::optional<MetricResult>& result() const { return result_; }

 private:
  // Evaluates this trainer's streams; returns a v1::EvaluationPart, `stopped` after a request to stop, or "" after an
  // error that was deferred.
  absl::StatusOr<std::string> EvaluateStreams(int64_t version);
  absl::StatusOr<std::string> ReadAndEvaluate(int64_t version);
  // Merges contributions by trainer. Trainers that have contributed nothing are appended to `without`. `stopped`:
  // whether some trainer was stopped; the result is then of no use.
  absl::StatusOr<MetricResult> Merge(const std::vector<std::string>& all, std::vector<size_t>* without,
                                     bool* stopped) const;
  void LogStop(int64_t step) const;
  void ReportLive(int64_t step, const MetricResult& result, const std::vector<size_t>& without);

  const Options o_;
  std::vector<int64_t> open_;
  std::optional<MetricResult> result_;
  int64_t result_step_ = -1;
  bool stopped_ = false;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_EVALUATIONS_H_
