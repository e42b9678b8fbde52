// Decides by measurement whether a trainer pulls rows ahead of their step in a sync job.
//
// Pulling ahead hides the time of the pull behind the step before, but costs a second call and the correction of rows.
// Which is more depends on the network, the free cores and the data. So some steps are run with it and some without,
// by turns, and the better way is kept until it is tried again. The bits are the same with both.
#ifndef WEIR_TRAINER_OVERLAP_SWITCH_H_
#define WEIR_TRAINER_OVERLAP_SWITCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace weir {

// Used by one thread.
class OverlapSwitch {
 public:
  // Steps of one turn, turns of each way in a trial, and steps from the end of a trial to the next one.
  static constexpr int kTurn = 6;
  static constexpr int kTurns = 4;
  static constexpr int kStay = 500;

  // A step begins: its rows are there. `now` is of a clock that is not set.
  void StepBegins(absl::Time now);
  // Returns true if the rows of the step after this one are to be pulled ahead.
  bool on() const { return on_; }
  // Returns the result of the trial that has ended with this step, for the log; else "".
  const std::string& news() const { return news_; }

 private:
  void EndTrial();

  bool on_ = true;
  // Steps since the trial began.
  int64_t steps_ = 0;
  absl::Time begin_ = absl::InfinitePast();  // of the turn
  // Seconds of the turns without it and with it.
  std::vector<double> seconds_[2];
  std::string news_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_OVERLAP_SWITCH_H_
