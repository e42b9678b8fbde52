// Wakes a thread when this process has used some processor time, or when somebody connects: what it costs grows with
// what the process does, and an idle process is left alone.
#ifndef WEIR_PSERVER_NETWORK_PROCESSOR_ALARM_H_
#define WEIR_PSERVER_NETWORK_PROCESSOR_ALARM_H_

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include "absl/time/time.h"

namespace weir {

// Belongs to the thread that constructs it: the system's alarm is a signal to this one thread, which takes it from a
// queue. Nothing is interrupted. The thread keeps the signal blocked.
class ProcessorAlarm {
 public:
  ProcessorAlarm();
  ~ProcessorAlarm();
  ProcessorAlarm(const ProcessorAlarm&) = delete;
  ProcessorAlarm& operator=(const ProcessorAlarm&) = delete;

  // Returns false if the system has no such alarm.
  bool works() const { return works_; }
  // Rings whenever somebody connects to a listening socket, also while nobody waits. Returns false if the system cannot
  // do so. All descriptors of the socket are affected (O_ASYNC).
  bool RingOnConnections(int listener) const;
  // Waits until all threads of the process together have used `used` more than now, for at most `most` of real time, or
  // until the alarm rings. The system looks at its ticks, so the time may be exceeded by 4 ms of each core. Returns
  // true if somebody has connected. Requires: works().
  bool Await(absl::Duration used, absl::Duration most);
  // Ends Await, or else the next one. For other threads; the alarm must exist meanwhile.
  void Ring();

 private:
  const pid_t thread_;
  sigset_t signals_;
  timer_t timer_ = {};
  bool works_ = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_PROCESSOR_ALARM_H_
