#include "tools/hosts/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "tools/hosts/agent_guard.h"
#include "tools/hosts/agent_messages.h"
#include "tools/hosts/child_process.h"
#include "tools/hosts/reaper.h"
#include "tools/hosts/reserved_ports.h"

namespace weir {
namespace {

// A message has the arguments and variables of one process, of which the kernel takes 2 MiB.
constexpr size_t kLongestMessage = size_t{16} << 20;
// With more output that launch has not taken, the processes wait as they would for a full pipe.
constexpr size_t kMostOutput = size_t{1} << 20;
constexpr int kMostPorts = 4096;
// Silence of launch, or stop by a signal, that an agent survives before launch has said how long it may be.
constexpr absl::Duration kSilenceAtStart = absl::Seconds(60);

class HostAgent {
 public:
  // Borrows the limit of its guard.
  explicit HostAgent(AgentLimit* guards_limit) : guards_limit_(guards_limit) {}
  int Run();

 private:
  absl::Status Obey(const std::string& line);
  absl::Status SetUp(const std::vector<std::string>& fields);
  void Start(AgentStart start);
  absl::Status Signal(const std::vector<std::string>& fields);
  void Say(const std::vector<std::string>& fields);

  absl::Status PollOnce();
  absl::Status ReadInput();
  void WriteOutput();
  void SayStopped(pid_t pid, bool stopped);
  bool Reap(pid_t pid);

  AgentLimit* const guards_limit_;
  Reaper reaper_;
  bool set_up_ = false;
  absl::Duration silence_ = kSilenceAtStart;
  absl::Time heard_ = Clock::Real()->Now();
  std::string input_;
  bool input_ended_ = false;
  std::string output_;
  bool output_broken_ = false;
  int stop_signal_ = 0;
  ReservedPorts ports_;
  std::map<int, std::unique_ptr<ChildProcess>> processes_;
};

void HostAgent::Say(const std::vector<std::string>& fields) {
  output_ += EncodeMessage(fields);
  WriteOutput();
}

void HostAgent::WriteOutput() {
  while (!output_.empty() && !output_broken_) {
    const ssize_t n = write(STDOUT_FILENO, output_.data(), output_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    output_broken_ = n < 0;
    if (n > 0) output_.erase(0, static_cast<size_t>(n));
  }
}

absl::Status HostAgent::ReadInput() {
  char buffer[16 << 10];
  const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return absl::OkStatus();
  if (n <= 0) {
    input_ended_ = true;
    return absl::OkStatus();
  }
  heard_ = Clock::Real()->Now();
  input_.append(buffer, static_cast<size_t>(n));
  for (size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    RETURN_IF_ERROR(Obey(line));
  }
  if (input_.size() <= kLongestMessage) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a message of launch has more than ", kLongestMessage, " bytes"));
}

absl::Status HostAgent::Obey(const std::string& line) {
  ASSIGN_OR_RETURN(const std::vector<std::string> fields, DecodeMessage(line));
  if (fields[0] == "beat") {
    Say({"beat"});
    return absl::OkStatus();
  }
  if (fields[0] == "setup") return SetUp(fields);
  if (!set_up_) return absl::InvalidArgumentError("launch has sent no setup");
  if (fields[0] == "signal") return Signal(fields);
  ASSIGN_OR_RETURN(AgentStart start, ParseStart(fields));
  if (processes_.contains(start.index)) {
    return absl::InvalidArgumentError(absl::StrCat("launch starts process ", start.index, " a second time"));
  }
  Start(std::move(start));
  return absl::OkStatus();
}

absl::Status HostAgent::SetUp(const std::vector<std::string>& fields) {
  ASSIGN_OR_RETURN(const AgentSetup setup, ParseSetup(fields));
  const auto refuse = [&](const absl::Status& why) {
    Say({"refused", absl::StrCat(ExitCodeOf(why)), std::string(why.message())});
    return absl::OkStatus();
  };
  silence_ = setup.silence;
  guards_limit_->store(absl::ToInt64Milliseconds(silence_));
  if (chdir(setup.directory.c_str()) != 0) {
    return refuse(
        absl::NotFoundError(absl::StrCat("cannot change to the directory ", setup.directory, ": ", strerror(errno),
                                         "; every host needs the directory in which launch "
                                         "was started")));
  }
  if (setup.ports < 0 || setup.ports > kMostPorts) {
    return absl::InvalidArgumentError(absl::StrCat("launch asks for ", setup.ports, " ports"));
  }
  if (setup.ports > 0) {
    absl::StatusOr<ReservedPorts> ports = ReservedPorts::Draw(setup.ports);
    if (!ports.ok()) return refuse(ports.status());
    ports_ = *std::move(ports);
  }
  std::vector<std::string> ready = {"ready"};
  for (const int port : ports_.ports()) ready.push_back(absl::StrCat(port));
  set_up_ = true;
  Say(ready);
  return absl::OkStatus();
}

void HostAgent::Start(AgentStart start) {
  const std::string index = absl::StrCat(start.index);
  const auto on_line = [this, index](bool is_stdout, std::string_view line) {
    Say({is_stdout ? "out" : "err", index, std::string(line)});
  };
  absl::StatusOr<std::unique_ptr<ChildProcess>> process =
      ChildProcess::Start({.name = absl::StrCat("process ", index),
                           .command = std::move(start.command),
                           .environment = std::move(start.environment),
                           .cpus = std::move(start.cpus)},
                          on_line);
  if (!process.ok()) {
    return Say({"failed", index, absl::StrCat(ExitCodeOf(process.status())), std::string(process.status().message())});
  }
  processes_[start.index] = *std::move(process);
}

absl::Status HostAgent::Signal(const std::vector<std::string>& fields) {
  ASSIGN_OR_RETURN(const int index, NumberIn(fields, 1));
  ASSIGN_OR_RETURN(const int signal, NumberIn(fields, 2));
  // It may just have ended.
  if (const auto found = processes_.find(index); found != processes_.end()) found->second->Signal(signal);
  return absl::OkStatus();
}

void HostAgent::SayStopped(pid_t pid, bool stopped) {
  for (const auto& [index, process] : processes_) {
    if (process->pid() == pid) Say({"stopped", absl::StrCat(index), stopped ? "1" : "0"});
  }
}

bool HostAgent::Reap(pid_t pid) {
  for (const auto& [index, process] : processes_) {
    if (process->pid() != pid || process->ending().has_value()) continue;
    process->Reap();
    Say({"end", absl::StrCat(index), absl::StrCat(process->ending()->wait_status())});
    return true;
  }
  return false;
}

absl::Status HostAgent::PollOnce() {
  std::vector<pollfd> fds = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                             {.fd = reaper_.fd(), .events = POLLIN, .revents = 0},
                             {.fd = STDOUT_FILENO, .events = 0, .revents = 0}};
  if (!output_.empty()) fds[2].events = POLLOUT;
  const bool takes_more = output_.size() < kMostOutput;
  for (const auto& [index, process] : processes_) {
    for (const bool is_stdout : {true, false}) {
      const int fd = process->output(is_stdout);
      if (fd >= 0 && takes_more) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
  }
  const absl::Duration left = heard_ + silence_ - Clock::Real()->Now();
  const absl::Duration wait = std::clamp(left, absl::ZeroDuration(), absl::Hours(24));
  poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(wait + absl::Microseconds(999))));
  if (fds[0].revents != 0) RETURN_IF_ERROR(ReadInput());
  // The reader is gone.
  if ((fds[2].revents & (POLLERR | POLLHUP)) != 0) output_broken_ = true;
  WriteOutput();
  if (takes_more) {
    for (const auto& [index, process] : processes_) process->ReadOutput();
  }
  reaper_.Take({.on_stop = [this](int signal) { stop_signal_ = signal; },
                .on_stopped = [this](pid_t pid, bool stopped) { SayStopped(pid, stopped); },
                .reap = [this](pid_t pid) { return Reap(pid); }});
  return absl::OkStatus();
}

int HostAgent::Run() {
  absl::Status status = reaper_.TakeOver();
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  output_ = EncodeHello({.host = host, .machine = ThisMachine()});
  WriteOutput();
  while (status.ok() && !input_ended_ && !output_broken_ && stop_signal_ == 0) {
    if (Clock::Real()->Now() >= heard_ + silence_) {
      status = absl::DeadlineExceededError(
          absl::StrCat("launch was silent for ", absl::FormatDuration(silence_), ": ending its processes"));
      break;
    }
    status = PollOnce();
  }
  // Kills what still runs, with all that it has started: first everyone, since one may take its time to end.
  for (const auto& [index, process] : processes_) process->Signal(SIGKILL);
  processes_.clear();
  if (!status.ok()) std::fprintf(stderr, "launch --agent: %s\n", std::string(status.message()).c_str());
  if (stop_signal_ != 0) return 128 + stop_signal_;
  return ExitCodeOf(status);
}

}  // namespace

int RunHostAgent() {
  return RunGuarded(kSilenceAtStart, [](AgentLimit* limit) { return HostAgent(limit).Run(); });
}

}  // namespace weir
