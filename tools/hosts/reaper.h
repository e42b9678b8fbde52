// Signals of a process that starts others and outlives all of them.
#ifndef WEIR_TOOLS_HOSTS_REAPER_H_
#define WEIR_TOOLS_HOSTS_REAPER_H_

#include <sys/types.h>

#include <functional>

#include "absl/status/status.h"

namespace weir {

// Receives SIGCHLD and the stop signals of this process through a descriptor. Processes that its children leave behind
// become its children, too, and are reaped. One object a process, on a thread that stays alive.
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

  struct Handlers {
    // Gets each stop signal that has arrived.
    std::function<void(int signal)> on_stop;
    // Gets the id of each child that a signal (SIGSTOP) has stopped, or that has been continued.
    std::function<void(pid_t pid, bool stopped)> on_stopped;
    // Gets the id of each child that has ended: reaps it and returns true, or returns false for one that it does not
    // know.
    std::function<bool(pid_t pid)> reap;
  };
  // Calls the handlers, in their order, for what has happened since the last call.
  void Take(const Handlers& handlers);

 private:
  int fd_ = -1;
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_REAPER_H_
