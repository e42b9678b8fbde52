// Rule of train.early_stop: training ends when evaluations get no better.
//
// A function of the job and of the figures of evaluations, which are the same at all trainers in sync: all end at the
// same step without communication. Not thread-safe.
#ifndef WEIR_TRAINER_METRICS_EARLY_STOP_H_
#define WEIR_TRAINER_METRICS_EARLY_STOP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "trainer/metrics/metric_result.h"

namespace weir {

class EarlyStop {
 public:
  explicit EarlyStop(const v1::JobConfig& job);

  // Counts the evaluation after `step` steps. One without the figure, or whose figure is undefined, is no better than
  // those before. Evaluations that train.eval_every_steps has not made, such as that of a run's end, and repeated ones
  // do not count: a run that was interrupted counts those of one that was not.
  void Judge(int64_t step, const MetricResult& result);
  // True when an evaluation at this step counts and has not been made. So it is after a resume, if the run before was
  // interrupted between the checkpoint and the evaluation of one step.
  bool Awaits(int64_t step) const;
  // True when train.early_stop.patience evaluations in a row were no better.
  bool Ends() const { return on_ && evaluations_ >= settings_.patience(); }
  // Returns why the run ends: "the best auc, 0.771200, is 3 evaluations old (train.early_stop)".
  std::string Why() const;

  // Sets state->early_stop; does nothing without train.early_stop.
  void Save(v1::TrainerState* state) const;
  // Goes on from state.early_stop, if it is there. Another figure's is not taken over, with a line in the log.
  void Restore(const v1::TrainerState& state);

 private:
  const bool on_;
  const v1::EarlyStop settings_;
  const std::string name_;
  const int64_t every_steps_;
  // Step of the last evaluation that counted; 0: none.
  int64_t step_ = 0;
  // Larger is better (MetricResult::RankBy).
  std::optional<double> best_;
  int evaluations_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_EARLY_STOP_H_
