// Ends the commands that this process has started together with it, however it ends: by SIGKILL, by a crash, out of
// memory. The system itself kills only the process that was started (PR_SET_PDEATHSIG), not those that it has started.
//
// The guard is one process of /bin/sh in a session of its own. It is told which process groups live, on a socket whose
// other end only this process has: when that end is closed, the guard kills the groups that are left.
#ifndef WEIR_TRAINER_FILES_COMMAND_GUARD_H_
#define WEIR_TRAINER_FILES_COMMAND_GUARD_H_

#include <sys/types.h>

#include <set>

namespace weir {

// Used by one thread, which starts the commands.
class CommandGuard {
 public:
  CommandGuard() = default;
  // Kills the groups that have not left.
  ~CommandGuard();
  CommandGuard(const CommandGuard&) = delete;
  CommandGuard& operator=(const CommandGuard&) = delete;

  // Starts the guard, or another one if it has ended. Returns 0, or an errno.
  int Ensure();
  // Tells the guard of a group that begins. Requires: called by the group's leader before exec, so that no death of
  // this process comes too early. Async-signal-safe; does not wait.
  void Announce(pid_t group) const;
  // The announced group was started.
  void Enter(pid_t group) { groups_.insert(group); }
  // The group is not to be killed any more. Call it before its leader is reaped: the number may then be another's.
  void Leave(pid_t group);

  pid_t pid() const { return pid_; }

 private:
  // Returns false if the guard does not take it.
  bool Tell(char verb, pid_t group) const;
  // Kills the guard, but not the groups.
  void Drop();

  pid_t pid_ = -1;
  int socket_ = -1;
  std::set<pid_t> groups_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_COMMAND_GUARD_H_
