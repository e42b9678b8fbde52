// A whole cluster on this machine: starts the servers, then the trainers, shows what they say, and ends them together.
#ifndef WEIR_TOOLS_LAUNCHER_H_
#define WEIR_TOOLS_LAUNCHER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace weir {

struct LaunchOptions {
  // Handed to every process as it is.
  std::string job;
  int servers = 1;
  int trainers = 1;
  // Paths of the programs.
  std::string pserver;
  std::string trainer;
  // Created if missing. One launch at a time may use it.
  std::string log_dir;
  // --set of every process.
  std::vector<std::string> overrides;
  // Further arguments of every trainer.
  std::vector<std::string> trainer_arguments;
  // --threads of each process; 0: not given to them.
  int server_threads = 0;
  int trainer_threads = 0;
  // A process that fails does not end the others.
  bool keep_going = false;
  // Where the profile of all goes, absolute; empty: none. Each process writes a part into log_dir.
  std::string profile;
  std::string profile_steps;
  // Of the job.
  absl::Duration lease = absl::Seconds(10);
  absl::Duration slow_warning = absl::Seconds(10);
  absl::Duration connect_deadline = absl::Seconds(300);
};

// Returns launch's exit status: 0 when every process ended with 0, else that of the one that failed first (128 + signal
// when a signal killed it).
//
//  * Console: "[trainer.0] ..." per line, stdout to stdout and stderr to stderr; <log_dir>/trainer.0.log has both.
//  * A failure is named at once and again at the end with its last lines; the others get SIGTERM, and SIGKILL two
//  leases
//    later. A process that says "peer lost" (exit code 3) is blamed only if no other fails within two seconds.
//  * SIGTERM, SIGINT or SIGHUP is passed on once; a second one kills all: 128 + signal. The same when one arrives
//  before the
//    trainers are started.
//  * The last line of stdout is the chief's "done ..." line, or "predicted ..." when it scores files. Before it stands
//  the table of
//    the profile, also when a process has failed.
//  * Whatever happens to this process, its children are killed with it.
//
// Takes over the process: blocks signals, reaps every child. Call it once, on a thread that stays.
int Launch(const LaunchOptions& options);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHER_H_
