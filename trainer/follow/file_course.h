// Course of a run as far as it concerns the files of data.train. FileCourse itself is for files that are known at the
// beginning, which need to know nothing of it; a Follower is told, and tells the other trainers.
#ifndef WEIR_TRAINER_FOLLOW_FILE_COURSE_H_
#define WEIR_TRAINER_FOLLOW_FILE_COURSE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/trainer.pb.h"

namespace weir {

// Functions are for one thread.
class FileCourse {
 public:
  virtual ~FileCourse() = default;

  // Returns true if a request to stop ends the streams that wait for files; a caller need not give up a wait by itself.
  virtual bool EndsStreams() const { return false; }
  // Sets how many steps this trainer has done.
  virtual void StepsDone(int64_t /*steps*/) {}
  // Posts where groups of files have ended, if that is news. Requires: called before the push of a step whose batches
  // may be short, so that every checkpoint with that step knows.
  virtual absl::Status PostReadings() { return absl::OkStatus(); }
  // Sets the state of the files for a checkpoint in which trainer_steps[t] steps of trainer t have taken effect.
  // Requires: this trainer is the chief.
  virtual absl::Status SaveAt(const std::vector<int64_t>& /*trainer_steps*/, v1::TrainerState* /*state*/) {
    return absl::OkStatus();
  }
  // Records that this trainer has done its last step. Others may still wait for files.
  virtual void Finish() {}
  // Ends the work on files. Requires: all trainers have done their last steps, or the run has failed.
  virtual void Stop() {}
};

}  // namespace weir

#endif  // WEIR_TRAINER_FOLLOW_FILE_COURSE_H_
