// Runs the processes of one host for a launch on another: `launch --agent`, which launch starts there over SSH.
#ifndef WEIR_TOOLS_HOSTS_HOST_AGENT_H_
#define WEIR_TOOLS_HOSTS_HOST_AGENT_H_

namespace weir {

// Obeys the messages on stdin (agent_messages.h) and answers on stdout. All processes are killed and the agent returns
// when stdin ends, when launch has been silent for longer than it said, when a message is none, when stdout is closed,
// or at a stop signal: whatever happens to launch or to the connection, no process is left. Should the agent itself be
// killed, the kernel kills its processes; should a signal stop it for as long as launch may be silent, a process beside
// it kills it (agent_guard.h).
//
// Returns the exit status of this program. Takes over the process: blocks signals, reaps every child.
int RunHostAgent();

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_HOST_AGENT_H_
