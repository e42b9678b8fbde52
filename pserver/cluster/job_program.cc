#include "pserver/cluster/job_program.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "glog/logging.h"

ABSL_FLAG(std::string, job, "", "the job file (proto/job.proto explains every field)");
ABSL_FLAG(std::string, program, "", "main program dumped by `transpile`, instead of the one made from the job");
ABSL_FLAG(std::string, startup_program, "", "startup program dumped by `transpile`; goes with --program");
ABSL_FLAG(int, threads, 0, "threads of this process, over train.threads; 0 = train.threads, or all cores");
ABSL_FLAG(int, stop_code, weir::kExitStopped,
          "exit code of a process whose job was asked to stop and has ended in good order before it was complete: 5 to "
          "125; 0: as if the job were complete");
ABSL_FLAG(int64_t, digest_every, -1,
          "train.digest_every_steps: as --set train.digest_every_steps=k, in every process of the job; 0 = none");

namespace weir {
namespace {

absl::Status CheckStopCode() {
  const int code = absl::GetFlag(FLAGS_stop_code);
  if (code == kExitOk || (code >= kExitStopped && code <= 125)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--stop_code=", code, ": must be 0, or 5 to 125: the others have a meaning"));
}

int Main(const JobProgram& program, int argc, char** argv) {
  StopSignals signals;
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::StatusOr<CommandLine> command = ParseCommandLine(argc, argv);
  if (!command.ok()) {
    std::fprintf(stderr, "%s: %s\n", program.name, std::string(command.status().message()).c_str());
    return kExitBadInput;
  }
  if (command->help) {
    std::fputs(HelpText(program.usage).c_str(), stdout);
    return kExitOk;
  }
  if (!command->rest.empty()) {
    std::fprintf(stderr, "%s: unexpected argument '%s'; see --help\n", program.name, command->rest[0].c_str());
    return kExitBadInput;
  }
  if (const int64_t every = absl::GetFlag(FLAGS_digest_every); every >= 0) {
    command->overrides.push_back(absl::StrCat("train.digest_every_steps=", every));
  }
  absl::Status status = CheckStopCode();
  if (status.ok()) status = program.run(command->overrides, &signals);
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", program.name, std::string(status.message()).c_str());
  return JobExitCode(status, &signals);
}

}  // namespace

void SetStopped(StopSignals* signals) { signals->SetCode(absl::GetFlag(FLAGS_stop_code)); }

int JobExitCode(const absl::Status& status, StopSignals* signals) {
  if (status.ok()) return signals->code();
  const int code = ExitCodeOf(status);
  if (code != kExitStopped) return code;
  const int stop_code = absl::GetFlag(FLAGS_stop_code);
  return stop_code == kExitOk ? kExitPeerLost : stop_code;
}

int RunJobProgram(const JobProgram& program, int argc, char** argv) {
  ExitWhenOutOfMemory(program.name);
  RaiseDescriptorLimit();
  return EndWithOutput(program.name, Main(program, argc, argv));
}

std::string ProcessName() {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return absl::StrCat(host, ":", getpid());
}

}  // namespace weir
