// Settings of a launch, as the command line and the job give them.
#ifndef WEIR_TOOLS_LAUNCHING_LAUNCH_OPTIONS_H_
#define WEIR_TOOLS_LAUNCHING_LAUNCH_OPTIONS_H_

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

// Paths of the programs, on all hosts.
struct ProgramPaths {
  std::string pserver;
  std::string trainer;
  // Agent on other hosts.
  std::string launch;
  // Explains the job on the page; "": not found.
  std::string transpile;
};

// How often a job is started again.
struct RestartLimit {
  int most = 0;
  bool per_hour = false;  // counts the last hour only
  std::string text;       // as given: "--restarts=3/hour"
};

// A job that fails is started again, unless it would fail again: not after exit code 2 or 4.
struct Restarts {
  RestartLimit limit;
  // Further arguments of every trainer of a job that is started again.
  std::vector<std::string> trainer_arguments;
  // True if the job has a checkpoint.dir.
  bool keeps_checkpoints = false;
  // Places the job on its hosts without some of them, for a restart when these do not answer. Null: it needs them all.
  std::function<absl::StatusOr<Placement>(const std::vector<std::string>& without)> place_without;
};

// Ways to watch the job while it runs.
struct Watching {
  // Port of the job's page (tools/page/job_page.h) and the address that it listens at; -1: no page.
  int page_port = -1;
  std::string page_address = "127.0.0.1";
  // Name, file, epochs and max_steps of the job, for the page.
  v1::JobState::Job job;
  // Directory of the job's checkpoints, whose findings the page shows; "": none.
  std::string checkpoints;
  // --metrics_port of the first process, the next one has the next port; 0: any; -1: none.
  int metrics_port = -1;
  std::string metrics_address;
  // --tensorboard and --tensorboard_histograms of every process.
  std::string tensorboard;
  int64_t tensorboard_histograms = 0;
};

// Deadlines of the job.
struct Deadlines {
  absl::Duration lease = absl::Seconds(10);
  absl::Duration slow_warning = absl::Seconds(10);
  absl::Duration connect = absl::Seconds(300);
  absl::Duration progress = absl::Seconds(1800);
};

struct LaunchOptions {
  // Job file, passed to every process unchanged.
  std::string job;
  // Descriptor with the text of a job that only launch could read, from a pipe or standard input: every process on this
  // machine gets it as its standard input, and `job` is /dev/stdin. -1: none. Borrowed.
  int job_fd = -1;
  // --job_dir of every process; "": not given.
  std::string job_dir;
  // --start_from of every process, with absolute paths; "": not given.
  std::string start_from = {};
  // --checkpoint_job of every server: the absolute path of the checkpoint whose job's model the trainers predict with;
  // "": not given.
  std::string checkpoint_job = {};
  // Processes and their hosts. At least one trainer.
  Placement placement;
  ProgramPaths programs;
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
  Restarts restarts;
  // Absolute path of the merged profile; empty: none. Each process writes its part into log_dir.
  std::string profile;
  std::string profile_steps;
  // Exit code of a job that a signal has ended in good order before it was complete, and of its processes; 0: as if it
  // were complete.
  int stop_code = kExitStopped;
  Watching watching;
  Deadlines deadlines;
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_LAUNCH_OPTIONS_H_
