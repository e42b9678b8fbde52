#include "tools/hosts/reaper.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/process/stop_signals.h"

namespace weir {

Reaper::~Reaper() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Reaper::TakeOver() {
  // Stop signals that came since the start of the program have been held back (framework/process/stop_signals.h).
  sigset_t set = StopSignalSet();
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // A closed console must not end the training.
  signal(SIGPIPE, SIG_IGN);
  // With an inherited SIG_IGN children would vanish without being reaped.
  signal(SIGCHLD, SIG_DFL);
  // Orphans of child processes are reparented to this process instead of to init.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  return absl::OkStatus();
}

void Reaper::Take(const Handlers& handlers) {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) handlers.on_stop(static_cast<int>(info.ssi_signo));
  }
  while (true) {
    siginfo_t changed = {};
    if (waitid(P_ALL, 0, &changed, WSTOPPED | WCONTINUED | WNOHANG) != 0 || changed.si_pid == 0) break;
    handlers.on_stopped(changed.si_pid, changed.si_code != CLD_CONTINUED);
  }
  while (true) {
    siginfo_t ended = {};
    // WNOWAIT leaves it unreaped, so that its pid is not reused before its group has been killed.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    // An orphan that a child process has left behind.
    if (!handlers.reap(ended.si_pid)) waitpid(ended.si_pid, nullptr, 0);
  }
}

}  // namespace weir
