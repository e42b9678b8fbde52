// Explains steps that take much longer than those before them: one line with the parts of the step's time, the longest
// wait and whom it was for, and the machine. Not thread-safe.
#ifndef WEIR_TRAINER_PROGRESS_SLOW_STEPS_H_
#define WEIR_TRAINER_PROGRESS_SLOW_STEPS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "trainer/progress/machine_state.h"

namespace weir {

// Times of one step, its border not included.
struct StepTimes {
  int64_t step = 0;                   // steps done, this one included
  absl::Time end;                     // of the step
  absl::Duration whole;               // from its beginning to its end
  absl::Duration data;                // waits for batches
  absl::Duration servers;             // waits for answers
  absl::Duration processor;           // processor time of the whole process
  absl::Duration longest_wait;        // for answers
  std::string longest_wait_for = "";  // "blocks of version 41 of server 1 (host:port)"
  int late_trainer = -1;              // the last to complete the step before, or -1, and by how much
  absl::Duration late;
};

class SlowSteps {
 public:
  // `factor`: Deadlines.slow_step_factor. `between`: least time between two lines.
  SlowSteps(double factor, absl::Duration between, MachineState machine = MachineState())
      : factor_(factor), between_(between), machine_(std::move(machine)) {}

  // Takes in a step that is done. Returns a line on it, or "" if it was not slow, or if the last line is too near; the
  // next one says how many such steps there were.
  std::string Explain(const StepTimes& times);

 private:
  // Returns the median of the steps before, or an infinite time while there are few.
  absl::Duration Median() const;
  std::string Line(const StepTimes& times, absl::Duration median) const;

  const double factor_;
  const absl::Duration between_;
  MachineState machine_;
  absl::Time looked_ = absl::InfinitePast(), said_ = absl::InfinitePast();
  int64_t unsaid_ = 0;
  std::vector<absl::Duration> last_;  // in no order
  size_t next_ = 0;                   // place of the oldest one
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_SLOW_STEPS_H_
