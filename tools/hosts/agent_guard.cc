#include "tools/hosts/agent_guard.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "tools/hosts/process.h"
#include "tools/hosts/reaper.h"

namespace weir {
namespace {

static_assert(AgentLimit::is_always_lock_free, "two processes share it");

class AgentGuard {
 public:
  // Starts the child process.
  absl::Status Start(absl::Duration limit, const std::function<int(AgentLimit*)>& agent);
  // Returns the exit status of the child when it has ended.
  int AwaitEnd();

 private:
  void PollOnce();
  void KillIfStopped();

  Reaper reaper_;
  AgentLimit* limit_ = nullptr;  // memory that both processes share, as long as they run
  pid_t agent_ = -1;
  absl::Time stopped_since_ = absl::InfiniteFuture();
  std::optional<int> code_;
};

absl::Status AgentGuard::Start(absl::Duration limit, const std::function<int(AgentLimit*)>& agent) {
  RETURN_IF_ERROR(reaper_.TakeOver());
  void* const shared = mmap(nullptr, sizeof(AgentLimit), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return absl::InternalError(absl::StrCat("no memory for the agent: ", strerror(errno)));
  limit_ = new (shared) AgentLimit(absl::ToInt64Milliseconds(limit));
  const pid_t guard = getpid();
  agent_ = fork();
  if (agent_ < 0) return absl::InternalError(absl::StrCat("no process for the agent: ", strerror(errno)));
  if (agent_ > 0) return absl::OkStatus();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The guard may have been killed before.
  if (getppid() != guard) _exit(kExitFailure);
  _exit(agent(limit_));
}

int AgentGuard::AwaitEnd() {
  while (!code_.has_value()) {
    PollOnce();
    KillIfStopped();
  }
  return *code_;
}

void AgentGuard::PollOnce() {
  pollfd fd = {.fd = reaper_.fd(), .events = POLLIN, .revents = 0};
  const absl::Duration left = stopped_since_ + absl::Milliseconds(limit_->load()) - Clock::Real()->Now();
  const absl::Duration wait = std::clamp(left, absl::ZeroDuration(), absl::Hours(24));
  poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(wait + absl::Microseconds(999))));
  reaper_.Take({.on_stop = [this](int signal) { kill(agent_, signal); },
                .on_stopped =
                    [this](pid_t pid, bool stopped) {
                      if (pid == agent_) stopped_since_ = stopped ? Clock::Real()->Now() : absl::InfiniteFuture();
                    },
                .reap =
                    [this](pid_t pid) {
                      if (pid != agent_) return false;
                      int status = 0;
                      waitpid(pid, &status, 0);
                      code_ = Ending(status).code();
                      return true;
                    }});
}

void AgentGuard::KillIfStopped() {
  const absl::Duration limit = absl::Milliseconds(limit_->load());
  if (code_.has_value() || Clock::Real()->Now() < stopped_since_ + limit) return;
  stopped_since_ = absl::InfiniteFuture();
  std::fprintf(stderr, "launch --agent: process %d was stopped by a signal (SIGSTOP) for %s: killed\n", agent_,
               absl::FormatDuration(limit).c_str());
  kill(agent_, SIGKILL);
}

}  // namespace

int RunGuarded(absl::Duration limit, const std::function<int(AgentLimit*)>& agent) {
  AgentGuard guard;
  if (const absl::Status status = guard.Start(limit, agent); !status.ok()) {
    std::fprintf(stderr, "launch --agent: %s\n", std::string(status.message()).c_str());
    return ExitCodeOf(status);
  }
  return guard.AwaitEnd();
}

}  // namespace weir
