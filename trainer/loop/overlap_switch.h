// Decides by measurement how a trainer of a sync job gets the rows of its next step.
//
// Rows that are pulled ahead of the step's version come while the step before is computed, but cost a second call and
// the correction of those that change. Else the pull waits at the servers for the version. Which takes less depends on
// the network, the free cores and the data. So some steps are run each way, by turns, and the better one is kept until
// it is tried again. The bits are the same.
#ifndef WEIR_TRAINER_LOOP_OVERLAP_SWITCH_H_
#define WEIR_TRAINER_LOOP_OVERLAP_SWITCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace weir {

// Used by one thread.
class OverlapSwitch {
 public:
  // Steps of one turn, turns of each way in a trial, and steps from the end of a trial to the next.
  static constexpr int kTurn = 6;
  static constexpr int kTurns = 4;
  static constexpr int kStay = 500;

  // A step passes these in turn; `now` is of a clock that is not set. The time between StepEnds and the next
  // AsksForStep (checkpoints, evaluations) does not count.
  void AsksForStep(absl::Time now);
  void StepBegins(absl::Time now);  // its rows are there
  void StepEnds(absl::Time now);
  // Returns true if the rows of the step after this one are to be pulled ahead of its version.
  bool on() const { return on_; }
  // Returns the result of the trial that has ended with this step, for the log; else "".
  const std::string& news() const { return news_; }

 private:
  void EndTrial();

  bool on_ = true;
  // Steps since the trial began.
  int64_t steps_ = 0;
  absl::Time since_;     // of the time that is being counted
  absl::Duration turn_;  // counted in this turn
  bool counts_ = false;  // false before the first step
  // Seconds of the turns without it and with it.
  std::vector<double> seconds_[2];
  std::string news_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_OVERLAP_SWITCH_H_
