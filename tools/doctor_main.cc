// doctor: tells what this machine has, and whether hosts reach each other. See `doctor --help`.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "framework/process/stop_signals.h"
#include "tools/machine/machine_report.h"
#include "tools/machine/reach.h"

ABSL_FLAG(std::string, format, "text", "text or json");
ABSL_FLAG(std::string, interface, "", "the network interface to take the address of, as comm.interface of a job");
ABSL_FLAG(std::string, towards, "", "HOST:PORT of a peer, for example server 0: the address that leads there is taken");
ABSL_FLAG(int, listen, -1, "answers the checks of other doctors at this port; 0: the system chooses one");
ABSL_FLAG(std::string, hosts, "", "HOST:PORT,HOST:PORT of doctors that listen: checks each of them from here");
ABSL_FLAG(int, wait_s, -1,
          "seconds for which hosts may come up and check this one; default: 0 with --hosts alone, 60 with --hosts and "
          "--listen, 600 with --listen alone");
ABSL_FLAG(int, deadline_s, 5, "seconds for each step of a check: a name, a connection, a message");
ABSL_FLAG(int, megabytes, 16, "MiB to send each way in a check, at most 1024");

namespace weir {
namespace {

constexpr char kUsage[] =
    "doctor [--interface=NAME | --towards=HOST:PORT]     what this machine has, and what Weir can use of it\n"
    "doctor --listen=PORT                                answers the checks of other doctors\n"
    "doctor --hosts=H1:P,H2:P                            checks doctors that listen: name, connection, bytes both "
    "ways\n"
    "doctor --listen=PORT --hosts=H1:P,H2:P,...          both; started on every host, checks every pair both ways\n"
    "\n"
    "Exit codes: 0 all is well, 2 bad input, or another service listens at a host's port, 3 a host is not reached,\n"
    "4 bytes were damaged on the way.\n";

absl::Status Print(const std::string& text, const google::protobuf::Message& report) {
  if (absl::GetFlag(FLAGS_format) == "text") {
    std::fputs(text.c_str(), stdout);
  } else {
    ASSIGN_OR_RETURN(const std::string json, ReportJson(report));
    std::fputs(json.c_str(), stdout);
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const CommandLine& line) {
  if (!line.rest.empty()) return absl::InvalidArgumentError(absl::StrCat("what is '", line.rest[0], "'? See --help"));
  if (!line.overrides.empty()) return absl::InvalidArgumentError("--set is no flag of doctor");
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(absl::StrCat("--format must be text or json, got '", format, "'"));
  }
  for (const auto& [name, value, most] : {std::tuple("deadline_s", absl::GetFlag(FLAGS_deadline_s), 3600),
                                          std::tuple("megabytes", absl::GetFlag(FLAGS_megabytes), 1024)}) {
    if (value < 1 || value > most) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " must be 1 to ", most, ", got ", value));
    }
  }
  const bool reaches = absl::GetFlag(FLAGS_listen) >= 0 || !absl::GetFlag(FLAGS_hosts).empty();
  const bool chooses = !absl::GetFlag(FLAGS_interface).empty() || !absl::GetFlag(FLAGS_towards).empty();
  if (reaches && chooses) {
    return absl::InvalidArgumentError("--interface and --towards are about this machine, without --listen and --hosts");
  }
  if (!absl::GetFlag(FLAGS_interface).empty() && !absl::GetFlag(FLAGS_towards).empty()) {
    return absl::InvalidArgumentError("--interface and --towards both choose an address; give one");
  }
  return absl::OkStatus();
}

absl::Duration WaitOfFlags() {
  if (absl::GetFlag(FLAGS_wait_s) >= 0) return absl::Seconds(absl::GetFlag(FLAGS_wait_s));
  if (absl::GetFlag(FLAGS_listen) < 0) return absl::ZeroDuration();
  return absl::Seconds(absl::GetFlag(FLAGS_hosts).empty() ? 600 : 60);
}

std::string OwnName() {
  char name[256] = "";
  (void)::gethostname(name, sizeof(name) - 1);
  return absl::StrCat(name, ":", ::getpid());
}

// Waits until so many others have checked this doctor, the time is over, or a signal has come.
void AwaitChecks(const ReachListener& listener, size_t others, absl::Time end, StopSignals* signals) {
  constexpr absl::Duration kLook = absl::Milliseconds(50);
  Mutex mu;
  CondVar stop;
  bool stopped = false;
  signals->OnStop([&] {
    MutexLock lock(&mu);
    stopped = true;
    stop.SignalAll();
  });
  {
    MutexLock lock(&mu);
    while (!stopped && Clock::Real()->Now() < end && listener.CheckedBy().size() < others) {
      stop.WaitWithTimeout(&mu, kLook);
    }
  }
  signals->OnStop({});
}

absl::Status Reach(StopSignals* signals) {
  const absl::Time end = Clock::Real()->Now() + WaitOfFlags();
  const int port = absl::GetFlag(FLAGS_listen);
  std::unique_ptr<ReachListener> listener;
  if (port >= 0) {
    ASSIGN_OR_RETURN(listener, ReachListener::Start(port));
    std::fprintf(stderr, "doctor: listens at port %d\n", listener->port());
  }
  v1::ReachReport report;
  const std::string hosts = absl::GetFlag(FLAGS_hosts);
  if (!hosts.empty()) {
    ASSIGN_OR_RETURN(report, CheckReach({.hosts = absl::StrSplit(hosts, ','),
                                         .name = OwnName(),
                                         .own_id = listener == nullptr ? 0 : listener->id(),
                                         .bytes = int64_t{absl::GetFlag(FLAGS_megabytes)} << 20,
                                         .deadline = absl::Seconds(absl::GetFlag(FLAGS_deadline_s)),
                                         .wait = WaitOfFlags()}));
  }
  if (listener != nullptr) {
    // With a list, the doctors on it that were reached check this one too.
    const size_t others =
        hosts.empty()
            ? SIZE_MAX
            : static_cast<size_t>(std::count_if(report.host().begin(), report.host().end(),
                                                [](const auto& host) { return !host.self() && !host.has_failure(); }));
    AwaitChecks(*listener, others, end, signals);
    for (const std::string& name : listener->CheckedBy()) report.add_checked_by(name);
  }
  RETURN_IF_ERROR(Print(ReachText(report), report));
  return ReachStatus(report);
}

absl::Status Run(const CommandLine& line, StopSignals* signals) {
  RETURN_IF_ERROR(CheckFlags(line));
  if (absl::GetFlag(FLAGS_listen) >= 0 || !absl::GetFlag(FLAGS_hosts).empty()) return Reach(signals);
  const v1::MachineReport report =
      ReportOnMachine({.interface = absl::GetFlag(FLAGS_interface), .towards = absl::GetFlag(FLAGS_towards)});
  RETURN_IF_ERROR(Print(MachineText(report), report));
  if (report.network().has_address() || absl::GetFlag(FLAGS_interface).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--interface: ", report.network().why_not()));
}

int Main(int argc, char** argv) {
  ExitWhenOutOfMemory("doctor");
  StopSignals signals;
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::fputs(HelpText(kUsage, /*reads_job=*/false).c_str(), stdout);
    return kExitOk;
  }
  const absl::Status status = line.ok() ? Run(*line, &signals) : line.status();
  if (!status.ok()) std::fprintf(stderr, "doctor: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::EndWithOutput("doctor", weir::Main(argc, argv)); }
