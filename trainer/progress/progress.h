// Progress display of a run: one live line on a terminal, otherwise one `key=value` line per interval.
#ifndef WEIR_TRAINER_PROGRESS_PROGRESS_H_
#define WEIR_TRAINER_PROGRESS_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "trainer/progress/training_point.h"
#include "transpiler/metrics/figure.h"

namespace weir {

// Figures that a step adds.
struct StepProgress {
  int64_t step = 0;      // steps done
  int64_t examples = 0;  // of the whole cluster where known, in this step
  double loss_sum = 0;   // over `loss_examples`
  int64_t loss_examples = 0;
  double fraction = 0;        // of the run, in [0, 1]; 0 when unknown
  int64_t skipped_steps = 0;  // of the run so far
  double loss_scale = 0;      // of the next step; 0 without train.loss_scaling
};

// Formats a duration: "1h02m", "3m07s", "12s".
std::string ShortDuration(absl::Duration d);

// Not thread-safe.
class Progress {
 public:
  // `out` is borrowed. live: rewrite one line. `on_point`, if set, gets what each line has.
  Progress(std::FILE* out, bool live, absl::Duration interval, Clock* clock,
           std::function<void(const TrainingPoint&)> on_point = {});
  ~Progress();

  // Adds a step; prints when an interval has passed. `figures` returns measures over the examples trained on since the
  // last line, of which those that are NaN are left out; it is called only when a line is due.
  template <typename FiguresFn>
  void Step(const StepProgress& step, FiguresFn figures) {
    Add(step);
    if (Due()) Print(figures());
  }
  // Prints `line` as a line of its own, in place of the live one.
  void Say(const std::string& line);

  int64_t examples() const { return examples_; }
  absl::Duration elapsed() const { return clock_->Now() - start_; }
  // Returns the mean loss since the start.
  double mean_loss() const { return all_loss_examples_ == 0 ? 0 : all_loss_sum_ / all_loss_examples_; }

 private:
  void Add(const StepProgress& step);
  bool Due() const;
  void Print(const std::vector<Figure>& figures);

  std::FILE* const out_;
  const bool live_;
  const absl::Duration interval_;
  const std::function<void(const TrainingPoint&)> on_point_;
  Clock* const clock_;
  const absl::Time start_;
  absl::Time last_;
  bool line_open_ = false;
  StepProgress now_;
  int64_t examples_ = 0, last_examples_ = 0;
  double loss_sum_ = 0, all_loss_sum_ = 0;
  int64_t loss_examples_ = 0, all_loss_examples_ = 0;
  double first_fraction_ = -1;
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_PROGRESS_H_
