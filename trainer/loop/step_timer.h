// Times the parts of a trainer's steps, and explains slow ones in the log (trainer/progress/slow_steps.h). Not
// thread-safe.
#ifndef WEIR_TRAINER_LOOP_STEP_TIMER_H_
#define WEIR_TRAINER_LOOP_STEP_TIMER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "proto/job.pb.h"
#include "pserver/client/client.h"
#include "trainer/progress/slow_steps.h"

namespace weir {

class StepTimer {
 public:
  // Borrows the trainer's client and the clock.
  StepTimer(int trainer, const v1::Deadlines& deadlines, Client* client, Clock* clock);

  void Begin();
  // Adds a wait for a batch.
  void Data(absl::Duration time) { now_.data += time; }
  // Ends a step; `steps` are done. Returns the time of the step.
  absl::Duration End(int64_t steps);

 private:
  absl::Duration ServersSoFar() const { return absl::Microseconds(servers_->value()); }

  const int trainer_;
  Client* const client_;
  Clock* const clock_;
  Counter* const servers_;  // the client's, of its waits
  SlowSteps slow_;
  absl::Time begun_;
  absl::Duration servers_before_, processor_before_;
  StepTimes now_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_STEP_TIMER_H_
