// Frame of the programs that take part in a job, pserver and trainer: their common flags, and main around the work.
// Linking this target defines the flags. For main files.
#ifndef WEIR_PSERVER_CLUSTER_JOB_PROGRAM_H_
#define WEIR_PSERVER_CLUSTER_JOB_PROGRAM_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "framework/process/stop_signals.h"

ABSL_DECLARE_FLAG(std::string, job);
ABSL_DECLARE_FLAG(std::string, program);
ABSL_DECLARE_FLAG(std::string, startup_program);
ABSL_DECLARE_FLAG(int, threads);

namespace weir {

struct JobProgram {
  // Name in messages: "pserver".
  const char* name = "";
  // Text of --help, above the flags.
  const char* usage = "";
  // Does the work. `overrides`: values of --set, and --digest_every as one of them.
  std::function<absl::Status(const std::vector<std::string>& overrides, StopSignals* signals)> run;
};

// Reads the command line and runs the program. Reports an error on stderr. Returns JobExitCode. Call at the beginning
// of main, before any thread is started.
int RunJobProgram(const JobProgram& program, int argc, char** argv);

// Makes --stop_code the exit code of this process if it ends without an error: a signal has ended the job, in good
// order, before it was complete.
void SetStopped(StopSignals* signals);

// Returns the exit code of a process that ends with `status` (exit_code.h). In the place of kExitStopped it is
// --stop_code; with --stop_code=0 a wait that a stop has cut short ends with kExitPeerLost.
int JobExitCode(const absl::Status& status, StopSignals* signals);

// Returns the name of this process for messages of others: "host:pid".
std::string ProcessName();

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_JOB_PROGRAM_H_
