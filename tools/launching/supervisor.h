// Runs a job: servers, then trainers, on this machine and on others, and again after a failure. Without servers every
// trainer has one inside, and gets a free port to listen at.
#ifndef WEIR_TOOLS_LAUNCHING_SUPERVISOR_H_
#define WEIR_TOOLS_LAUNCHING_SUPERVISOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/launching/launch_options.h"

namespace weir {

// Parses "20" or "3/hour"; InvalidArgument. `name`: where it stands, for messages.
absl::StatusOr<RestartLimit> ParseRestarts(const std::string& name, const std::string& text);

// Returns launch's exit status: 0 if every process ended with 0; stop_code if a process ended with it and the others
// with 0, whoever was asked for the end of the job; else that of the process that failed first (128 + signal if a
// signal killed it). kExitFailure if all went well but stdout could not be written, unless it is closed or its reader
// is gone.
//
//   * Console: "[trainer.0] ..." per line, stdout to stdout and stderr to stderr; <log_dir>/trainer.0.log has both.
//     What another host says by itself is "[host] ..." on stderr.
//   * A failure is named at once, and again at the end with its last lines; the others get SIGTERM, and SIGKILL two
//     leases later. A process that reports "peer lost" (exit code 3) is blamed only if no other fails within two
//     seconds. A process on another host is named with its host.
//   * SIGTERM, SIGINT or SIGHUP is passed on once, with SIGCONT for processes that are stopped; a second one kills all:
//     128 + signal. One that arrives before the trainers are started ends the servers: stop_code (128 + signal if that
//     is 0). Processes that then neither end nor say anything for progress_deadline are ended.
//   * Servers that outlive the last trainer by three leases are ended, and so are trainers that outlive a server, even
//     one that has ended with 0: a failure that names both. With keep_going, servers of a node (--nnodes) may have
//     trainers on others.
//   * A process that a signal (SIGSTOP) has stopped for two leases, or that is stopped when others have lost a peer, is
//     killed and named: a failure with exit code 3. With keep_going the others go on. A job of which all processes are
//     stopped may be continued within progress_deadline.
//   * A process that SIGKILL has ended, not from launch, is explained with figures of memory.
//   * The last line of stdout is the chief's "done ..." line, or "predicted ..." when it scores files; on a node
//   without
//     the chief, that of the lowest trainer there. The table of the profile precedes it, also when a process has
//     failed.
//   * Whatever happens to this process, its children are killed with it, and so are its processes on other hosts.
//   * A host that does not answer within ssh.timeout ends the launch before any server is started. Later, one whose
//     agent says nothing for two leases is given up: its processes are lost.
//   * With restarts: the others get SIGKILL a moment after SIGTERM, and the job is started again, with logs in
//     <log_dir>/restart.<n>. The first restart comes at once, later ones after a pause of up to a minute, unless the
//     start before has lasted. What is said above of the end holds for the last start.
//
// Takes over the process: blocks signals, reaps every child. Call it once, on a thread that stays alive.
int Launch(const LaunchOptions& options);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_SUPERVISOR_H_
