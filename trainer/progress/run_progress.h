// Keeps the file "PROGRESS" in checkpoint.dir: how far the run has come. A run that goes on from a checkpoint after a
// death learns from it how much time and how many steps that has cost. Nothing in it can fail the training: the file
// may be missing, damaged, or not be written.
#ifndef WEIR_TRAINER_PROGRESS_RUN_PROGRESS_H_
#define WEIR_TRAINER_PROGRESS_RUN_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Used by the chief's training thread.
class RunProgress {
 public:
  static constexpr char kFile[] = "PROGRESS";

  // `dir`: checkpoint.dir. `run`: name of the run, "": it has none. Reads what an earlier process has left.
  RunProgress(const std::string& dir, const std::string& run, Clock* clock);
  ~RunProgress();
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  // Begins at `step`, with a line in the log if an earlier process of the run did not end in good order. `resumed`:
  // from a checkpoint; else the run begins at its first step, also where it had begun before. `restarts`: number of
  // times the job was started again, as given by the program that starts it.
  void Begin(int64_t step, bool resumed, int64_t restarts);
  // Records that so many steps are done. Writes the file at most ten times a second. Requires: Begin.
  void Step(int64_t step);
  // Records that the run has ended in good order. Requires: Begin; no Step follows.
  void End();

  // Returns the progress known so far: restarts, lost_seconds, repeated_steps.
  const v1::RunProgress& now() const { return now_; }
  // Returns the share of the run's time that was not lost: neither between the last step before a death and the first
  // one after it, nor with steps that were done again. 1 before the first step.
  double Goodput() const;

 private:
  void Write();
  // Gives up the file, with a line in the log.
  void Close();

  Clock* const clock_;
  const std::string path_;
  v1::RunProgress before_;  // of the earlier process
  v1::RunProgress now_;
  // Time of the last step of an earlier process that did not end in good order; until the first step of this one.
  double lost_since_ = 0;
  int64_t repeated_ = 0;   // steps that this process does again
  double counted_to_ = 0;  // time up to which RunProgress.seconds counts
  int fd_ = -1;
  absl::Time written_ = absl::InfinitePast();
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_RUN_PROGRESS_H_
