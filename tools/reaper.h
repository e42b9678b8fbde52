// Signals of a process that starts others and outlives all of them.
#ifndef WEIR_TOOLS_REAPER_H_
#define WEIR_TOOLS_REAPER_H_

#include <sys/types.h>

#include <functional>

#include "absl/status/status.h"

namespace weir {

// Receives SIGCHLD and the stop signals of this process through a descriptor. What its children leave behind becomes
// its child, too, and is reaped. One object a process, on a thread that stays alive.
class Reaper {
 public:
  Reaper() = default;
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Blocks the signals, ignores SIGPIPE, and adopts orphans. Internal with the system's reason.
  absl::Status TakeOver();
  // Returns the descriptor to poll for POLLIN.
  int fd() const { return fd_; }

  // Calls on_stop with each stop signal that has arrived. Then calls reap with the id of each child that has ended: it
  // reaps the child and returns true, or returns false for one that it does not know.
  void Take(const std::function<void(int signal)>& on_stop, const std::function<bool(pid_t pid)>& reap);

 private:
  int fd_ = -1;
};

}  // namespace weir

#endif  // WEIR_TOOLS_REAPER_H_
