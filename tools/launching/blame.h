// Decides of what a job has died: of the process that failed first, or of what launch itself could not do.
#ifndef WEIR_TOOLS_LAUNCHING_BLAME_H_
#define WEIR_TOOLS_LAUNCHING_BLAME_H_

#include <string>

#include "absl/status/status.h"
#include "tools/launching/display.h"
#include "tools/launching/launcher.h"
#include "tools/machine/memory_shortage.h"

namespace weir {

// Used by one thread. A process is blamed only as long as launch itself has not failed.
class Blame {
 public:
  // Takes a failure of launch itself, unless there is one already.
  void Fail(absl::Status failure);
  // Takes the end of a process that has failed. Returns whether it is blamed: the first is; with `passes`, so is one
  // that has not itself lost a peer.
  bool Take(const Launcher::Member& member, bool passes);
  // Takes what was said of a process that was killed because it is stopped. It is the failure unless another one is
  // known; a process that has lost a peer has lost this one.
  void TakeFrozen(const std::string& text);

  // Says what has failed and shows the last lines of the process, at the end. `begun`: whether a process was started.
  void Show(bool begun, Display* display) const;
  // Exit code of the failure; 0: nothing has failed.
  int code() const;
  // "trainer.1 failed: killed by signal 9 (Killed)"; "": nothing has failed.
  std::string why() const;
  // Failure of launch itself.
  const absl::Status& failure() const { return failure_; }

 private:
  // Says why a process may have been killed by SIGKILL that launch has not sent.
  std::string ExplainKill(const Launcher::Member& member) const;

  const MemoryFigures memory_at_start_ = ReadMemoryFigures();
  const Process* culprit_ = nullptr;
  std::string kill_explained_;  // of the culprit
  absl::Status failure_;
};

// Returns whether a process has ended because it has lost a peer.
bool LostAPeer(const Ending& ending);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_BLAME_H_
