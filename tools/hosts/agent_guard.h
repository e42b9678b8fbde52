// Watches the agent of a host (host_agent.h) from a process beside it: an agent that a signal has stopped notices
// nothing, and keeps its processes.
#ifndef WEIR_TOOLS_HOSTS_AGENT_GUARD_H_
#define WEIR_TOOLS_HOSTS_AGENT_GUARD_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"

namespace weir {

// Time after which an agent that is stopped is killed, in milliseconds. The agent sets it, the guard reads it.
using AgentLimit = std::atomic<int64_t>;

// Runs `agent` in a child process, and returns its exit status, or 128 + signal if a signal has killed it. Kills it if
// a signal (SIGSTOP) has stopped it for the limit, which is `limit` until the agent sets another one, and says so on
// stderr. Stop signals are passed on to it. If this process is killed, the kernel kills the child.
//
// Takes over the process: blocks signals, reaps every child. Requires: this process has one thread.
int RunGuarded(absl::Duration limit, const std::function<int(AgentLimit*)>& agent);

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_AGENT_GUARD_H_
