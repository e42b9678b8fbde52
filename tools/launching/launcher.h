// Runs the processes that a launch has to start: servers, then trainers, on this machine and on others; shows their
// output, and ends them together. Without servers every trainer has one inside, and gets a free port to listen at.
#ifndef WEIR_TOOLS_LAUNCHING_LAUNCHER_H_
#define WEIR_TOOLS_LAUNCHING_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/exit_code.h"
#include "proto/watch.pb.h"
#include "tools/hosts/ssh.h"
#include "tools/launching/core_shares.h"
#include "tools/launching/placement.h"

namespace weir {

// How often a job is started again.
struct RestartLimit {
  int most = 0;
  bool per_hour = false;  // counts the last hour only
  std::string text;       // as given: "--restarts=3/hour"
};
// Parses "20" or "3/hour"; InvalidArgument. `name`: where it stands, for messages.
absl::StatusOr<RestartLimit> ParseRestarts(const std::string& name, const std::string& text);

struct LaunchOptions {
  // Job file, passed to every process unchanged.
  std::string job;
  // Descriptor with the text of a job that only launch could read, from a pipe or standard input: every process on this
  // machine gets it as its standard input, and `job` is /dev/stdin. -1: none. Borrowed.
  int job_fd = -1;
  // --job_dir of every process; "": not given.
  std::string job_dir;
  // Processes and their hosts. At least one trainer.
  Placement placement;
  // Paths of the programs, on all hosts; `launch` is that of the agent on other hosts.
  std::string pserver;
  std::string trainer;
  std::string launch;
  SshSettings ssh;
  // Created if missing. Only one launch at a time may use it.
  std::string log_dir;
  // Values of --set for every process.
  std::vector<std::string> overrides;
  // Further arguments of every trainer.
  std::vector<std::string> trainer_arguments;
  // Variables for every process.
  std::map<std::string, std::string> environment;
  Bind bind = Bind::kAuto;
  // --gpus; "": devices are left as they are.
  std::string gpus;
  // If true, --threads is not passed, because --set sets train.threads.
  bool threads_by_job = false;
  // If true, a process that fails, or is killed because it is stopped, does not end the others.
  bool keep_going = false;
  // A job that fails is started again, unless it would fail again: not after exit code 2 or 4.
  RestartLimit restarts;
  // Further arguments of every trainer of a job that is started again.
  std::vector<std::string> restart_arguments;
  // Whether the job has a checkpoint.dir, its checkpoint.per_host, and train.lanes.
  bool keeps_checkpoints = false;
  bool per_host = false;
  int lanes = 0;
  // Places the job on its hosts without some of them, for a restart when these do not answer. Null: it needs them all.
  std::function<absl::StatusOr<Placement>(const std::vector<std::string>& without)> place_without;
  // Absolute path of the merged profile; empty: none. Each process writes its part into log_dir.
  std::string profile;
  std::string profile_steps;
  // Exit code of a job that a signal has ended in good order before it was complete, and of its processes; 0: as if it
  // were complete.
  int stop_code = kExitStopped;
  // Port of the job's page (tools/page/job_page.h) and the address that it listens at; -1: no page.
  int page_port = -1;
  std::string page_address = "127.0.0.1";
  // Name, file, epochs and max_steps of the job, for the page.
  v1::JobState::Job page_job;
  // Path of the program that explains the job on the page.
  std::string transpile;
  // --metrics_port of the first process, the next one has the next port; 0: any; -1: none.
  int metrics_port = -1;
  std::string metrics_address;
  // --tensorboard and --tensorboard_histograms of every process.
  std::string tensorboard;
  int64_t tensorboard_histograms = 0;
  // Deadlines of the job.
  absl::Duration lease = absl::Seconds(10);
  absl::Duration slow_warning = absl::Seconds(10);
  absl::Duration connect_deadline = absl::Seconds(300);
  absl::Duration progress_deadline = absl::Seconds(1800);
};

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

#endif  // WEIR_TOOLS_LAUNCHING_LAUNCHER_H_
