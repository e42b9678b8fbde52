// Runs one start of a job from its first process to the end of the last.
#ifndef WEIR_TOOLS_LAUNCHING_ATTEMPT_H_
#define WEIR_TOOLS_LAUNCHING_ATTEMPT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/exit_code.h"
#include "tools/hosts/reaper.h"
#include "tools/launching/blame.h"
#include "tools/launching/display.h"
#include "tools/launching/frozen_watch.h"
#include "tools/launching/launch_options.h"
#include "tools/launching/launcher.h"

namespace weir {

// End of one start of the job.
struct AttemptEnd {
  int code = kExitOk;
  // Failure: "trainer.1 failed: killed by signal 9 (Killed)"; "": none.
  std::string why;
  // True if a signal has asked for the end, here or in a process of the job.
  bool stopped = false;
  // True if launch itself ended it before its processes could begin.
  bool never_began = false;
  // Names of hosts that did not answer.
  std::vector<std::string> unreached;
  // "done ..." or "predicted ..."; "": none that counts.
  std::string done_line;
  // Step of the newest checkpoint that the chief has told of; -1: none.
  int64_t saved_step = -1;
};

// Decides what happens when a process ends, is stopped or is late, and when a signal comes. supervisor.h says what each
// of these leads to. One thread, on which Run works until all processes have ended.
class Attempt {
 public:
  // Borrows all. `may_restart`: if it fails, the job may be started again, so nothing of it is worth waiting for.
  Attempt(const LaunchOptions& options, Display* display, Reaper* reaper, bool may_restart)
      : options_(options),
        display_(*display),
        reaper_(*reaper),
        may_restart_(may_restart),
        launcher_(options, display),
        frozen_watch_({.limit = frozen_limit(),
                       .pause_limit = options.deadlines.progress,
                       .whole_job = options.placement.whole_job()}) {}

  AttemptEnd Run();

 private:
  // Moments at which something is done; the infinite future: never.
  struct Timers {
    absl::Time kill_at = absl::InfiniteFuture();
    absl::Time give_up_at = absl::InfiniteFuture();
    // Time until which another process may turn out to have failed first.
    absl::Time blame_at = absl::InfiniteFuture();
    // Servers still alive at this time, after all trainers have ended, are a failure, and so are trainers after a
    // server.
    absl::Time rest_ends_by = absl::InfiniteFuture();
    // Time before which, after a stop signal, the processes must write a line or end.
    absl::Time silent_until = absl::InfiniteFuture();
    // Time after which processes here that were killed, but do not end, are left alone.
    absl::Time leave_at = absl::InfiniteFuture();
  };
  // Requests of signals to stop.
  struct Stop {
    // The first one; 0: none.
    int signal = 0;
    bool second = false;
    // Processes were ended without waiting for their own end: how they end says nothing.
    bool at_once = false;
    // Time until which a SIGTERM counts as a repeat of the one before.
    absl::Time same_until = absl::InfinitePast();
  };

  absl::Status Start();
  // Works until missing() returns no names, or an error, or the job is to end. The deadline's error names those that
  // are missing, and `deadline_name`.
  absl::Status Await(const std::function<absl::StatusOr<std::vector<std::string>>()>& missing, absl::Duration deadline,
                     const char* deadline_name);
  void PollOnce(absl::Time until);
  void CloseHosts();
  AttemptEnd Finish();

  void OnStopSignal(int signal);
  void OnEnd(const Launcher::Member& member);
  void OnTimers();
  absl::Time NextTimer() const;
  // Stops to wait for processes here that cannot be killed.
  void LeaveAlone();

  // Begins to wait for servers without trainers, or trainers without one of their servers.
  void AwaitRest(bool server_ended);
  // Returns the error of those that have not ended in time after the others.
  absl::Status RestIsLate() const;
  // Looks for processes that a signal has stopped, and kills those that are frozen for good.
  void LookForFrozen();
  // Kills a process that is stopped, and takes that for the failure of the job unless there is another cause. `why`:
  // "was stopped by a signal (SIGSTOP) for two leases (20 s)".
  void KillFrozen(const Launcher::Member& member, const std::string& why);
  absl::Duration frozen_limit() const { return (may_restart_ ? 1 : 2) * options_.deadlines.lease; }

  // Sends SIGTERM now and SIGKILL two leases later.
  void EndAll();
  // Does what EndAll does, because of a failure of launch itself.
  void FailAll(const absl::Status& failure);
  void KillAll();

  const LaunchOptions& options_;
  Display& display_;
  Reaper& reaper_;
  const bool may_restart_;
  Launcher launcher_;
  Blame blame_;
  FrozenWatch frozen_watch_;
  Timers timers_;
  Stop stop_;
  bool training_ = false;
  bool ending_ = false;
  bool left_alone_ = false;
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_ATTEMPT_H_
