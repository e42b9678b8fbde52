#include "tools/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/stop_signals.h"
#include "framework/profile/profile_run.h"
#include "glog/logging.h"
#include "tools/child_process.h"
#include "tools/console.h"
#include "tools/reserved_ports.h"

namespace weir {
namespace {

// Interval of looking for port files while servers start.
constexpr absl::Duration kStartTick = absl::Milliseconds(20);
// Time that a process may take to end after another one has ended with "peer lost" because of it.
constexpr absl::Duration kBlameDelay = absl::Seconds(2);
// A port number and a newline, or an endpoint.
constexpr uint64_t kLongestPortFile = 300;

std::string Seconds(absl::Duration d) { return absl::StrCat(absl::ToInt64Seconds(d + absl::Milliseconds(500)), " s"); }

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options), out_(STDOUT_FILENO), err_(STDERR_FILENO) {}
  ~Launcher() {
    children_.clear();
    for (const int fd : {signals_, log_dir_lock_}) {
      if (fd >= 0) close(fd);
    }
  }

  int Run();

 private:
  enum class Kind { kServer, kTrainer };
  struct Member {
    Kind kind;
    int id;
    std::unique_ptr<ChildProcess> process;
    // Empty until a server is ready.
    std::string endpoint;

    bool alive() const { return !process->ending().has_value(); }
  };

  absl::Status TakeOver();
  absl::Status LockLogDir();
  absl::Status StartServers();
  absl::Status StartTrainers();
  absl::Status Start(Kind kind, int id, std::vector<std::string> command,
                     std::map<std::string, std::optional<std::string>> environment);
  std::vector<std::string> Settings(int threads) const;
  std::string PortFile(int server) const;
  ProfilePart ProfilePartOf(Kind kind, int id) const;
  void MergeProfile();
  bool ServersReady();
  absl::Status WaitForServers();

  void PollOnce(absl::Time until);
  void OnSignals();
  void OnStopSignal(int signal);
  void ReapChildren();
  void OnEnd(Member& member);
  void OnTimers();
  absl::Time NextTimer() const;

  // Sends SIGTERM now and SIGKILL two leases later.
  void EndAll();
  void SignalAll(int signal);
  int Alive(std::optional<Kind> kind) const;
  std::string AliveNames() const;
  void Say(const std::string& text) { err_.Line("launch: " + text); }
  int Finish();

  const LaunchOptions& options_;
  Console out_;
  Console err_;
  int signals_ = -1;
  int log_dir_lock_ = -1;
  std::vector<Member> children_;
  // Where trainers listen, without servers.
  ReservedPorts trainer_ports_;
  bool training_ = false;
  std::string done_line_;
  int done_by_ = -1;

  // Index of the process that is blamed for the failure; the first that failed unless it only reported a lost peer.
  std::optional<size_t> culprit_;
  // Failure of launch itself rather than of a process.
  absl::Status failure_;
  // The signal that asked for the end; 0 if there was none.
  int stop_signal_ = 0;
  bool stopped_at_once_ = false;

  bool ending_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
  // Until then another process may turn out to have failed first.
  absl::Time blame_at_ = absl::InfiniteFuture();
  // Servers still alive at this time, after all trainers have ended, are a failure.
  absl::Time servers_end_by_ = absl::InfiniteFuture();
};

absl::Status Launcher::TakeOver() {
  // Stop signals that came since the start of the program have been held back (framework/base/stop_signals.h).
  sigset_t set = StopSignalSet();
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // A closed console must not end the training.
  signal(SIGPIPE, SIG_IGN);
  // With an inherited SIG_IGN children would vanish without being reaped.
  signal(SIGCHLD, SIG_DFL);
  // Orphans of child processes are reparented to this process instead of to init.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  return absl::OkStatus();
}

absl::Status Launcher::LockLogDir() {
  RETURN_IF_ERROR(CreateDirectories(options_.log_dir));
  log_dir_lock_ = open(options_.log_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (log_dir_lock_ < 0 || flock(log_dir_lock_, LOCK_EX | LOCK_NB) != 0) {
    const bool busy = errno == EWOULDBLOCK;
    return absl::InvalidArgumentError(
        absl::StrCat("log directory ", options_.log_dir, ": ",
                     busy ? "another launch uses it; give this one its own --log_dir" : strerror(errno)));
  }
  return absl::OkStatus();
}

std::string Launcher::PortFile(int server) const {
  return JoinPath(options_.log_dir, absl::StrCat("pserver.", server, ".port"));
}

ProfilePart Launcher::ProfilePartOf(Kind kind, int id) const {
  const char* const role = kind == Kind::kServer ? "server" : "trainer";
  return {absl::StrCat(role, " ", id), JoinPath(options_.log_dir, absl::StrCat("profile.", role, ".", id, ".json"))};
}

// Returns the flags that servers and trainers have in common.
std::vector<std::string> Launcher::Settings(int threads) const {
  std::vector<std::string> flags = {"--job=" + options_.job};
  if (threads > 0) flags.push_back(absl::StrCat("--threads=", threads));
  for (const std::string& override : options_.overrides) flags.push_back("--set=" + override);
  flags.push_back(absl::StrCat("--set=distribute.servers=", options_.servers));
  flags.push_back(absl::StrCat("--set=distribute.trainers=", options_.trainers));
  return flags;
}

absl::Status Launcher::Start(Kind kind, int id, std::vector<std::string> command,
                             std::map<std::string, std::optional<std::string>> environment) {
  const bool server = kind == Kind::kServer;
  const std::string name = absl::StrCat(server ? "pserver." : "trainer.", id);
  // A cluster's own scripts may have set these for another cluster.
  for (const char* variable :
       {"PADDLE_TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_CURRENT_ENDPOINT", "POD_IP", "PADDLE_PORT", "LOCAL_RANK"}) {
    environment.try_emplace(variable, std::nullopt);
  }
  if (!options_.profile.empty()) {
    const std::string part = ProfilePartOf(kind, id).file;
    RETURN_IF_ERROR(RemoveTree(part));
    // Insert them before the arguments behind --, which may override them.
    command.insert(command.begin() + 1,
                   {"--profile=" + part, "--profile_steps=" + options_.profile_steps, "--profile_table=false"});
  }
  environment["TRAINING_ROLE"] = server ? "PSERVER" : "TRAINER";
  environment["PADDLE_TRAINERS_NUM"] = absl::StrCat(options_.trainers);
  environment["PADDLE_NUM_TRAINERS"] = absl::StrCat(options_.trainers);
  const auto on_line = [this, prefix = absl::StrCat("[", name, "] "), trainer = server ? -1 : id](
                           const ChildProcess&, bool is_stdout, std::string_view line) {
    const bool ends = trainer >= 0 && is_stdout && (line.starts_with("done ") || line.starts_with("predicted "));
    // Trainer 0 may have died on the way (--keep_going), so the lowest trainer that reports counts.
    if (ends && (done_line_.empty() || trainer <= done_by_)) {
      done_line_ = line;
      done_by_ = trainer;
    }
    (is_stdout ? out_ : err_).Line(prefix + std::string(line));
  };
  ChildOptions child = {.name = name,
                        .command = std::move(command),
                        .environment = std::move(environment),
                        .log_file = JoinPath(options_.log_dir, name + ".log")};
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(std::move(child), on_line));
  children_.push_back({.kind = kind, .id = id, .process = std::move(process)});
  return absl::OkStatus();
}

absl::Status Launcher::StartServers() {
  for (int i = 0; i < options_.servers; ++i) {
    RETURN_IF_ERROR(RemoveTree(PortFile(i)));
    std::vector<std::string> command = {options_.pserver, "--endpoint=127.0.0.1:0", absl::StrCat("--server_id=", i),
                                        "--port_file=" + PortFile(i)};
    for (std::string& flag : Settings(options_.server_threads)) command.push_back(std::move(flag));
    RETURN_IF_ERROR(Start(Kind::kServer, i, std::move(command), {}));
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartTrainers() {
  std::vector<std::string> endpoints;
  for (const Member& member : children_) endpoints.push_back(member.endpoint);
  const bool trainers_serve = options_.servers == 0;
  if (trainers_serve) {
    ASSIGN_OR_RETURN(trainer_ports_, ReservedPorts::Draw(options_.trainers));
    for (const int port : trainer_ports_.ports()) endpoints.push_back(absl::StrCat("127.0.0.1:", port));
  }
  const std::string pservers = absl::StrJoin(endpoints, ",");
  for (int i = 0; i < options_.trainers; ++i) {
    std::vector<std::string> command = {options_.trainer, absl::StrCat("--trainer_id=", i), "--pservers=" + pservers};
    for (std::string& flag : Settings(options_.trainer_threads)) command.push_back(std::move(flag));
    command.insert(command.end(), options_.trainer_arguments.begin(), options_.trainer_arguments.end());
    const std::string id = absl::StrCat(i);
    std::map<std::string, std::optional<std::string>> environment = {{"PADDLE_TRAINER_ID", id}, {"LOCAL_RANK", id}};
    environment[trainers_serve ? "PADDLE_TRAINER_ENDPOINTS" : "PADDLE_PSERVERS_IP_PORT_LIST"] = pservers;
    if (trainers_serve) environment["PADDLE_CURRENT_ENDPOINT"] = endpoints[static_cast<size_t>(i)];
    RETURN_IF_ERROR(Start(Kind::kTrainer, i, std::move(command), std::move(environment)));
  }
  return absl::OkStatus();
}

bool Launcher::ServersReady() {
  bool ready = true;
  for (Member& member : children_) {
    if (!member.endpoint.empty()) continue;
    const absl::StatusOr<std::string> text = ReadWholeFile(PortFile(member.id), kLongestPortFile);
    const std::string written = text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
    // The file has "6170" or "127.0.0.1:6170".
    const size_t colon = written.rfind(':');
    int port = 0;
    if (absl::SimpleAtoi(colon == std::string::npos ? written : written.substr(colon + 1), &port) && port > 0) {
      member.endpoint = absl::StrCat("127.0.0.1:", port);
    } else {
      ready = false;
    }
  }
  return ready;
}

absl::Status Launcher::WaitForServers() {
  const absl::Time start = Clock::Real()->Now();
  absl::Time warn_at = start + options_.slow_warning;
  while (!ending_ && !ServersReady()) {
    const absl::Time now = Clock::Real()->Now();
    std::vector<std::string> missing;
    for (const Member& member : children_) {
      if (!member.endpoint.empty()) continue;
      missing.push_back(member.process->name());
      if (!member.alive() && member.process->ending()->ok()) {
        return absl::UnavailableError(absl::StrCat(member.process->name(), " ended before it was ready"));
      }
    }
    const std::string names = absl::StrJoin(missing, ", ");
    if (now >= start + options_.connect_deadline) {
      return absl::DeadlineExceededError(absl::StrCat(names, missing.size() == 1 ? " was" : " were",
                                                      " not ready within ", Seconds(options_.connect_deadline),
                                                      " (deadlines.connect_deadline_s of the job)"));
    }
    if (now >= warn_at) {
      Say(absl::StrCat("waiting for ", names, " to be ready: ", Seconds(now - start), " of ",
                       Seconds(options_.connect_deadline)));
      warn_at = now + options_.slow_warning;
    }
    PollOnce(now + kStartTick);
    OnTimers();
  }
  for (const Member& member : children_) {
    // The server may have removed its file itself.
    if (absl::Status removed = RemoveTree(PortFile(member.id)); !removed.ok()) Say(std::string(removed.message()));
  }
  return absl::OkStatus();
}

int Launcher::Run() {
  absl::Status status = TakeOver();
  if (status.ok()) status = LockLogDir();
  if (status.ok()) status = StartServers();
  if (status.ok()) status = WaitForServers();
  if (status.ok() && !ending_) {
    training_ = true;
    status = StartTrainers();
  }
  if (!status.ok()) {
    failure_ = status;
    Say(std::string(status.message()));
    EndAll();
  }
  while (Alive(std::nullopt) > 0) {
    OnTimers();
    PollOnce(NextTimer());
  }
  return Finish();
}

absl::Time Launcher::NextTimer() const { return std::min({kill_at_, blame_at_, servers_end_by_}); }

void Launcher::OnTimers() {
  const absl::Time now = Clock::Real()->Now();
  if (now >= kill_at_) {
    kill_at_ = absl::InfiniteFuture();
    Say(absl::StrCat(AliveNames(), " did not end within two leases (", Seconds(2 * options_.lease), "): killed"));
    SignalAll(SIGKILL);
  }
  if (now >= blame_at_) {
    blame_at_ = absl::InfiniteFuture();
    EndAll();
  }
  if (now >= servers_end_by_) {
    servers_end_by_ = absl::InfiniteFuture();
    failure_ = absl::InternalError(absl::StrCat(AliveNames(), " did not end within three leases (",
                                                Seconds(3 * options_.lease), ") after the last trainer"));
    Say(std::string(failure_.message()));
    EndAll();
  }
}

void Launcher::PollOnce(absl::Time until) {
  std::vector<pollfd> fds = {{.fd = signals_, .events = POLLIN, .revents = 0}};
  for (const Console* console : {&out_, &err_}) {
    if (console->pending()) fds.push_back({.fd = console->fd(), .events = POLLOUT, .revents = 0});
  }
  for (const Member& member : children_) {
    for (const bool is_stdout : {true, false}) {
      const int fd = member.process->output(is_stdout);
      if (fd >= 0) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
  }
  // Round up, so that a timer has passed when poll returns. A day at most, since poll takes milliseconds as an int.
  const absl::Duration left = std::clamp(until - Clock::Real()->Now(), absl::ZeroDuration(), absl::Hours(24));
  poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left + absl::Microseconds(999))));
  for (Member& member : children_) member.process->ReadOutput();
  out_.Flush();
  err_.Flush();
  OnSignals();
}

void Launcher::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) OnStopSignal(static_cast<int>(info.ssi_signo));
  }
  ReapChildren();
}

void Launcher::OnStopSignal(int signal) {
  const bool second = stop_signal_ != 0;
  // The terminal and the shell may both send SIGHUP when the terminal is closed.
  if (second && signal == SIGHUP) return;
  if (!second) stop_signal_ = signal;
  if (second) {
    stopped_at_once_ = true;
    Say(absl::StrCat("second signal (", strsignal(signal), "): killing ", AliveNames()));
    SignalAll(SIGKILL);
    return;
  }
  if (!training_) {
    // Servers without trainers have no step border at which they could end.
    stopped_at_once_ = true;
    Say(absl::StrCat(strsignal(signal), " before the trainers were started: ending the servers"));
    EndAll();
    return;
  }
  Say(absl::StrCat(strsignal(signal), " is passed on to ", AliveNames(), "; a second signal stops them at once"));
  SignalAll(signal);
}

void Launcher::ReapChildren() {
  while (true) {
    siginfo_t info = {};
    // WNOWAIT leaves it unreaped, so that its pid is not reused before its group has been killed.
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto found = std::find_if(children_.begin(), children_.end(),
                                    [&](const Member& member) { return member.process->pid() == info.si_pid; });
    if (found == children_.end()) {
      // An orphan that a child process has left behind.
      waitpid(info.si_pid, nullptr, 0);
      continue;
    }
    found->process->Reap();
    OnEnd(*found);
  }
}

void Launcher::OnEnd(Member& member) {
  const Ending ending = *member.process->ending();
  const bool blame = !ending.ok() && !stopped_at_once_ && failure_.ok() &&
                     // The blame passes on only from a process that has lost a peer, and only until the others are
                     // ended.
                     (!culprit_.has_value() || (blame_at_ != absl::InfiniteFuture() && ending.code() != kExitPeerLost));
  if (blame && !ending_) {
    culprit_ = static_cast<size_t>(&member - children_.data());
    const bool messenger = ending.code() == kExitPeerLost;
    const bool go_on = options_.keep_going && training_;
    Say(absl::StrCat(member.process->name(), " failed: ", ending.ToString(),
                     go_on ? "; the others go on" : (messenger ? "; waiting for the others" : "; ending the others")));
    if (!go_on && messenger) blame_at_ = Clock::Real()->Now() + kBlameDelay;
    if (!go_on && !messenger) EndAll();
  } else if (!ending.ok() && !ending_) {
    Say(absl::StrCat(member.process->name(), " failed: ", ending.ToString()));
  }
  if (training_ && !ending_ && Alive(Kind::kTrainer) == 0 && Alive(Kind::kServer) > 0 &&
      servers_end_by_ == absl::InfiniteFuture()) {
    servers_end_by_ = Clock::Real()->Now() + 3 * options_.lease;
  }
}

void Launcher::EndAll() {
  if (ending_) return;
  ending_ = true;
  blame_at_ = servers_end_by_ = absl::InfiniteFuture();
  kill_at_ = Clock::Real()->Now() + 2 * options_.lease;
  SignalAll(SIGTERM);
}

void Launcher::SignalAll(int signal) {
  for (Member& member : children_) member.process->Signal(signal);
}

int Launcher::Alive(std::optional<Kind> kind) const {
  return static_cast<int>(std::count_if(children_.begin(), children_.end(), [&](const Member& member) {
    return member.alive() && (!kind.has_value() || member.kind == *kind);
  }));
}

std::string Launcher::AliveNames() const {
  std::vector<std::string> names;
  for (const Member& member : children_) {
    if (member.alive()) names.push_back(member.process->name());
  }
  return absl::StrJoin(names, ", ");
}

void Launcher::MergeProfile() {
  if (options_.profile.empty() || children_.empty()) return;
  std::vector<ProfilePart> parts;
  for (const Member& member : children_) parts.push_back(ProfilePartOf(member.kind, member.id));
  const absl::StatusOr<std::string> table = MergeProfiles(parts, options_.profile);
  if (!table.ok()) return Say(absl::StrCat("no profile: ", table.status().message()));
  for (const absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(*table), '\n')) {
    out_.Line(std::string(line));
  }
  for (const ProfilePart& part : parts) {
    if (const absl::Status removed = RemoveTree(part.file); !removed.ok()) Say(std::string(removed.message()));
  }
}

int Launcher::Finish() {
  int code = kExitOk;
  if (culprit_.has_value()) {
    const ChildProcess& process = *children_[*culprit_].process;
    code = process.ending()->code();
    Say(absl::StrCat(process.name(), " failed: ", process.ending()->ToString(), "; the last lines of ",
                     process.log_file(), ":"));
    for (const std::string& line : process.last_lines()) Say("  " + line);
    if (process.last_lines().empty()) Say("  (it said nothing)");
  } else if (!failure_.ok()) {
    code = ExitCodeOf(failure_);
    Say(std::string(failure_.message()));
  }
  if (stopped_at_once_) code = 128 + stop_signal_;
  const bool chief_done = !done_line_.empty() && failure_.ok() && (code == kExitOk || options_.keep_going);
  MergeProfile();
  if (chief_done) out_.Line(done_line_);
  out_.Drain(options_.lease);
  err_.Drain(options_.lease);
  return code;
}

}  // namespace

int Launch(const LaunchOptions& options) {
  google::InitGoogleLogging("launch");
  FLAGS_logtostderr = true;
  CHECK_GE(options.servers, 0);
  CHECK_GT(options.trainers, 0);
  return Launcher(options).Run();
}

}  // namespace weir
