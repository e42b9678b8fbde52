#include "tools/launching/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/stop_signals.h"
#include "framework/profile/profile_run.h"
#include "glog/logging.h"
#include "tools/hosts/child_process.h"
#include "tools/hosts/host_set.h"
#include "tools/hosts/process.h"
#include "tools/hosts/reaper.h"
#include "tools/launching/child_commands.h"
#include "tools/launching/console.h"
#include "tools/launching/explain_job.h"
#include "tools/launching/frozen_watch.h"
#include "tools/launching/host_shares.h"
#include "tools/machine/memory_shortage.h"
#include "tools/page/job_page.h"

namespace weir {
namespace {

// Time that a process may take to end after another one has ended with "peer lost" because of it.
constexpr absl::Duration kBlameDelay = absl::Seconds(2);
// Time that the others have to end when one has failed, if the job is started again.
constexpr absl::Duration kRestartGrace = absl::Milliseconds(300);
// A start that has lasted so long has gone well; one that has not is followed by a pause that doubles each time.
constexpr absl::Duration kLasted = absl::Minutes(1);
constexpr absl::Duration kFirstBackOff = absl::Seconds(1);
constexpr absl::Duration kMostBackOff = absl::Minutes(1);
// Time for another host to tell that the processes that were killed there have ended, and for ssh to end.
constexpr absl::Duration kGiveUp = absl::Seconds(5);

std::string Seconds(absl::Duration d) { return absl::StrCat(absl::ToInt64Seconds(d + absl::Milliseconds(500)), " s"); }

// Port in the line with which a server says that it listens, "ready server=0 endpoint=127.0.0.1:6170"; 0 if it is
// another line.
int ReadyPort(std::string_view line) {
  int port = 0;
  const size_t colon = line.rfind(':');
  if (!line.starts_with("ready server=") || colon == std::string_view::npos) return 0;
  return absl::SimpleAtoi(std::string(line.substr(colon + 1)), &port) && port > 0 ? port : 0;
}

// What lasts from the first start of a job to its end, however often it is started again.
struct Surroundings {
  Console out{STDOUT_FILENO};
  Console err{STDERR_FILENO};
  Reaper reaper;
  std::unique_ptr<JobPageState> page_state;  // null: no page
  // Step of the newest checkpoint that the chief has told of; -1: none.
  int64_t saved_step = -1;

  void Say(const std::string& text) { err.Line("launch: " + text); }
};

// How a start of the job has ended.
struct AttemptEnd {
  int code = kExitOk;
  // What has failed: "trainer.1 failed: killed by signal 9 (Killed)"; "": nothing.
  std::string why;
  // A signal has asked for the end, here or in a process of the job.
  bool stopped = false;
  // It was ended before its processes could begin, by launch itself.
  bool never_began = false;
  // Names of hosts that did not answer.
  std::vector<std::string> unreached;
  // "done ..." or "predicted ..."; "": none that counts.
  std::string done_line;
};

// Starts the job once.
class Launcher {
 public:
  // Borrows both. `may_restart`: if it fails, the job may be started again, so nothing of it is worth waiting for.
  Launcher(const LaunchOptions& options, Surroundings* surroundings, bool may_restart)
      : options_(options),
        s_(*surroundings),
        may_restart_(may_restart),
        out_(s_.out),
        err_(s_.err),
        reaper_(s_.reaper),
        page_state_(s_.page_state.get()),
        frozen_watch_({.limit = (may_restart ? 1 : 2) * options.lease,
                       .pause_limit = options.progress_deadline,
                       .whole_job = options.placement.whole_job()}) {}

  AttemptEnd Run();

 private:
  enum class Kind { kServer, kTrainer };
  struct Member {
    Kind kind;
    int id;
    Process* process;
    // Empty until a server is ready.
    std::string endpoint;
    // Whether its end has been seen.
    bool seen = false;
    size_t on_page = 0;  // its index there

    bool alive() const { return !process->ending().has_value(); }
    // Whether it has ended with this code.
    bool ended_with(int code) const {
      return !alive() && !process->ending()->lost() && process->ending()->code() == code;
    }
  };
  // Moments at which something is done; the infinite future: never.
  struct Timers {
    absl::Time kill_at = absl::InfiniteFuture();
    absl::Time give_up_at = absl::InfiniteFuture();
    // Until then another process may turn out to have failed first.
    absl::Time blame_at = absl::InfiniteFuture();
    // Servers still alive at this time, after all trainers have ended, are a failure, and so are trainers after a
    // server.
    absl::Time rest_ends_by = absl::InfiniteFuture();
    // After a stop signal the processes must say something before that, or end.
    absl::Time silent_until = absl::InfiniteFuture();
    // Processes here that have been killed and cannot be, are left alone then.
    absl::Time leave_at = absl::InfiniteFuture();
  };

  absl::Status Start();
  absl::Status ConnectHosts();
  absl::Status DivideHosts();
  absl::Status StartServers();
  absl::Status StartTrainers();
  absl::Status StartProcess(Kind kind, int id, size_t host, ChildCommand child, std::vector<int> cpus);
  void OnLine(size_t member, bool is_stdout, std::string_view line);
  void MergeProfile();
  // Works until missing() returns no names, or an error, or the job is to end. The deadline's error names those that
  // are missing, and `deadline_name`.
  absl::Status Await(const std::function<absl::StatusOr<std::vector<std::string>>()>& missing, absl::Duration deadline,
                     const char* deadline_name);
  absl::StatusOr<std::vector<std::string>> MissingServers() const;

  void PollOnce(absl::Time until);
  void OnStopSignal(int signal);
  void OnEnd(Member& member);
  // Begins to wait for servers without trainers, or trainers without one of their servers.
  void AwaitRest(Kind ended);
  // The error of those that have not ended in time after the others.
  absl::Status RestIsLate() const;
  // Looks for processes that a signal has stopped, and kills those that are frozen for good.
  void LookForFrozen();
  // Kills a process that is stopped, and takes that for the failure of the job unless there is another cause. `why`:
  // "was stopped by a signal (SIGSTOP) for two leases (20 s)".
  void KillFrozen(const Member& member, const std::string& why);
  // Why a process may have been killed by SIGKILL that launch has not sent.
  std::string ExplainKill(const Member& member) const;
  void OnTimers();
  absl::Time NextTimer() const;
  void CloseHosts();

  // Sends SIGTERM now and SIGKILL two leases later.
  void EndAll();
  // As EndAll, because of a failure of launch itself.
  void FailAll(absl::Status failure);
  void SignalAll(int signal);
  void KillAll();
  int Alive(std::optional<Kind> kind) const;
  // Whether the process has ended as it should: its work is complete, or the job was stopped.
  bool EndedWell(const Member& member) const;
  // Whether some process says that the job was stopped before it was complete.
  bool JobStopped() const;
  std::string AliveNames() const;
  std::string EndedServers() const;
  void Say(const std::string& text) { s_.Say(text); }
  AttemptEnd Finish();

  const LaunchOptions& options_;
  Surroundings& s_;
  const bool may_restart_;
  Console& out_;
  Console& err_;
  Reaper& reaper_;
  JobPageState* const page_state_;
  HostSet hosts_;
  std::vector<HostShares> shares_;
  std::vector<Member> members_;
  bool training_ = false;
  std::string done_line_;
  int done_by_ = -1;

  // Index of the process that is blamed for the failure; the first that failed unless it only reported a lost peer.
  std::optional<size_t> culprit_;
  // Failure of launch itself rather than of a process.
  absl::Status failure_;
  // The signal that asked for the end; 0 if there was none.
  int stop_signal_ = 0;
  bool second_signal_ = false;
  // Processes were ended at a signal without waiting for their own end: how they end says nothing.
  bool stopped_at_once_ = false;
  // Until then a SIGTERM is the one that came before.
  absl::Time same_until_ = absl::InfinitePast();
  bool ending_ = false;
  bool left_alone_ = false;
  FrozenWatch frozen_watch_;
  MemoryFigures memory_at_start_;
  std::string kill_explained_;  // of the culprit
  Timers timers_;
};

absl::Status Launcher::ConnectHosts() {
  const Placement& placement = options_.placement;
  HostSetOptions hosts{.ssh = options_.ssh, .agent = {options_.launch, "--agent"}, .lease = options_.lease};
  for (const PlacedHost& host : placement.hosts) {
    hosts.names.push_back(host.remote ? host.name : "");
    // Trainers that serve have to know each other's ports before they listen.
    hosts.ports.push_back(placement.trainers_serve() && !placement.meet_at_master ? host.trainers : 0);
  }
  if (placement.master_port == 0) ++hosts.ports[0];
  std::error_code error;
  hosts.directory = std::filesystem::current_path(error).string();
  RETURN_IF_ERROR(hosts_.Connect(std::move(hosts), [this](const std::string& host, std::string_view line) {
    err_.Line(absl::StrCat("[", host, "] ", std::string(line)));
  }));
  return Await(
      [this]() -> absl::StatusOr<std::vector<std::string>> {
        RETURN_IF_ERROR(hosts_.failure());
        std::vector<std::string> names = hosts_.Missing();
        for (std::string& name : names) name.insert(0, "host ");
        return names;
      },
      options_.ssh.timeout, "--ssh_timeout_s");
}

absl::Status Launcher::DivideHosts() {
  for (size_t i = 0; i < options_.placement.hosts.size(); ++i) {
    ASSIGN_OR_RETURN(HostShares shares, ShareHost(options_, i, hosts_.machine(i)));
    shares_.push_back(std::move(shares));
  }
  for (const std::string& line : Describe(options_, shares_)) Say(line);
  return absl::OkStatus();
}

absl::Status Launcher::StartProcess(Kind kind, int id, size_t host, ChildCommand child, std::vector<int> cpus) {
  const bool server = kind == Kind::kServer;
  // That of an earlier run. Whatever else has the name stays, and the process says that it cannot write there.
  if (!options_.profile.empty()) (void)::unlink(ProfileFile(options_, server, id).c_str());
  const std::string name = ProcessName(server, id);
  ASSIGN_OR_RETURN(Process* const process,
                   hosts_.Start(host,
                                {.name = name,
                                 .command = std::move(child.command),
                                 .environment = std::move(child.environment),
                                 .log_file = JoinPath(options_.log_dir, name + ".log"),
                                 .cpus = std::move(cpus),
                                 .stdin_fd = options_.job_fd},
                                [this, member = members_.size()](bool is_stdout, std::string_view line) {
                                  OnLine(member, is_stdout, line);
                                }));
  members_.push_back({.kind = kind, .id = id, .process = process});
  if (page_state_ != nullptr) {
    const PlacedHost& place = options_.placement.hosts[host];
    members_.back().on_page =
        page_state_->AddProcess(server ? "pserver" : "trainer", id, place.remote ? place.name : "localhost");
    if (const auto* child = dynamic_cast<const ChildProcess*>(process)) {
      page_state_->SetPid(members_.back().on_page, child->pid());
    }
  }
  return absl::OkStatus();
}

void Launcher::OnLine(size_t index, bool is_stdout, std::string_view line) {
  Member& member = members_[index];
  if (timers_.silent_until != absl::InfiniteFuture()) {
    timers_.silent_until = Clock::Real()->Now() + options_.progress_deadline;
  }
  const bool server = member.kind == Kind::kServer;
  if (const int port = server && is_stdout && member.endpoint.empty() ? ReadyPort(line) : 0; port > 0) {
    member.endpoint = absl::StrCat(options_.placement.servers[static_cast<size_t>(member.id)].address, ":", port);
  }
  if (page_state_ != nullptr) page_state_->TakeLine(member.on_page, is_stdout, line);
  if (int64_t step = 0; !server && is_stdout && line.starts_with("checkpoint step=")) {
    const std::string_view number = line.substr(line.find('=') + 1);
    if (absl::SimpleAtoi(std::string(number.substr(0, number.find(' '))), &step)) s_.saved_step = step;
  }
  const bool ends = !server && is_stdout && (line.starts_with("done ") || line.starts_with("predicted "));
  // Trainer 0 may have died on the way (--keep_going), so the lowest trainer that reports counts.
  if (ends && (done_line_.empty() || member.id <= done_by_)) {
    done_line_ = line;
    done_by_ = member.id;
  }
  (is_stdout ? out_ : err_).Line(absl::StrCat("[", ProcessName(server, member.id), "] ", std::string(line)));
}

absl::Status Launcher::StartServers() {
  std::vector<size_t> started(shares_.size());
  for (size_t i = 0; i < options_.placement.servers.size(); ++i) {
    const int host = options_.placement.servers[i].host;
    if (host < 0) continue;
    const size_t at = static_cast<size_t>(host);
    const CoreShare& share = shares_[at].servers[started[at]++];
    const int id = static_cast<int>(i);
    RETURN_IF_ERROR(StartProcess(Kind::kServer, id, at, ServerCommand(options_, id, share.threads), share.cpus));
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartTrainers() {
  const Placement& placement = options_.placement;
  Meeting meeting{.endpoints = ServerEndpoints(placement),
                  .master_addr = placement.master_addr,
                  .master_port = placement.master_port > 0 ? placement.master_port : hosts_.ports(0).back()};
  for (const Member& server : members_) meeting.endpoints[static_cast<size_t>(server.id)] = server.endpoint;
  if (placement.trainers_serve() && !placement.meet_at_master) {
    for (size_t host = 0; host < placement.hosts.size(); ++host) {
      for (int i = 0; i < placement.hosts[host].trainers; ++i) {
        meeting.endpoints.push_back(
            absl::StrCat(placement.hosts[host].address, ":", hosts_.ports(host)[static_cast<size_t>(i)]));
      }
    }
  }
  for (size_t host = 0; host < placement.hosts.size(); ++host) {
    for (int i = 0; i < placement.hosts[host].trainers; ++i) {
      const CoreShare& share = shares_[host].trainers[static_cast<size_t>(i)];
      ChildCommand command = TrainerCommand(
          options_, meeting, {.host = host, .local_rank = i, .threads = share.threads, .gpus = shares_[host].gpus});
      RETURN_IF_ERROR(
          StartProcess(Kind::kTrainer, placement.hosts[host].first_trainer + i, host, std::move(command), share.cpus));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Launcher::MissingServers() const {
  std::vector<std::string> missing;
  for (const Member& member : members_) {
    if (EndedWell(member)) {
      return absl::UnavailableError(
          absl::StrCat(member.process->name(), " ended before ",
                       member.endpoint.empty() ? "it was ready" : "the trainers were started"));
    }
    if (member.endpoint.empty()) missing.push_back(member.process->name());
  }
  return missing;
}

absl::Status Launcher::Await(const std::function<absl::StatusOr<std::vector<std::string>>()>& missing,
                             absl::Duration deadline, const char* deadline_name) {
  const absl::Time start = Clock::Real()->Now();
  absl::Time warn_at = start + options_.slow_warning;
  while (!ending_) {
    ASSIGN_OR_RETURN(const std::vector<std::string> who, missing());
    if (who.empty()) break;
    const absl::Time now = Clock::Real()->Now();
    const std::string names = absl::StrJoin(who, ", ");
    if (now >= start + deadline) {
      return absl::DeadlineExceededError(absl::StrCat(names, who.size() == 1 ? " was" : " were", " not ready within ",
                                                      Seconds(deadline), " (", deadline_name, ")"));
    }
    if (now >= warn_at) {
      Say(absl::StrCat("waiting for ", names, " to be ready: ", Seconds(now - start), " of ", Seconds(deadline)));
      warn_at = now + options_.slow_warning;
    }
    PollOnce(std::min({warn_at, start + deadline, NextTimer()}));
    OnTimers();
  }
  return absl::OkStatus();
}

absl::Status Launcher::Start() {
  memory_at_start_ = ReadMemoryFigures();
  RETURN_IF_ERROR(ConnectHosts());
  if (ending_) return absl::OkStatus();
  RETURN_IF_ERROR(DivideHosts());
  RETURN_IF_ERROR(StartServers());
  RETURN_IF_ERROR(
      Await([this] { return MissingServers(); }, options_.connect_deadline, "deadlines.connect_deadline_s of the job"));
  if (ending_) return absl::OkStatus();
  training_ = true;
  if (page_state_ != nullptr) page_state_->SetJob("running", 0, "");
  return StartTrainers();
}

AttemptEnd Launcher::Run() {
  if (const absl::Status status = Start(); !status.ok()) {
    failure_ = status;
    Say(std::string(status.message()));
    EndAll();
  }
  while (Alive(std::nullopt) > 0 && !left_alone_) {
    OnTimers();
    PollOnce(NextTimer());
  }
  CloseHosts();
  return Finish();
}

void Launcher::CloseHosts() {
  hosts_.Close();
  const absl::Time end = Clock::Real()->Now() + kGiveUp;
  while (hosts_.connected() && Clock::Real()->Now() < end) PollOnce(end);
}

absl::Time Launcher::NextTimer() const {
  return std::min({timers_.kill_at, timers_.give_up_at, timers_.blame_at, timers_.rest_ends_by, timers_.silent_until,
                   timers_.leave_at, ending_ ? absl::InfiniteFuture() : frozen_watch_.next()});
}

void Launcher::OnTimers() {
  const absl::Time now = Clock::Real()->Now();
  if (now >= timers_.kill_at) {
    timers_.kill_at = absl::InfiniteFuture();
    if (!may_restart_) {
      Say(absl::StrCat(AliveNames(), " did not end within two leases (", Seconds(2 * options_.lease), "): killed"));
    }
    KillAll();
  }
  if (now >= timers_.give_up_at) {
    timers_.give_up_at = absl::InfiniteFuture();
    hosts_.Abandon(absl::DeadlineExceededError(
        absl::StrCat(AliveNames(), ": no word of its end within ", Seconds(kGiveUp), " after it was killed")));
    timers_.leave_at = now + kGiveUp;
  }
  if (now >= timers_.leave_at) {
    timers_.leave_at = absl::InfiniteFuture();
    left_alone_ = true;
    if (failure_.ok()) {
      failure_ = absl::DeadlineExceededError(absl::StrCat(
          AliveNames(), " cannot be killed, and is left alone: does it wait for a file server that is gone?"));
    }
    Say(std::string(failure_.message()));
  }
  LookForFrozen();
  if (now >= timers_.blame_at) {
    timers_.blame_at = absl::InfiniteFuture();
    // They are whom the messenger has lost.
    for (const size_t i : frozen_watch_.Stopped()) {
      KillFrozen(members_[i], "was stopped by a signal (SIGSTOP), and the others have lost it");
    }
    EndAll();
  }
  if (now >= timers_.rest_ends_by) FailAll(RestIsLate());
  if (now >= timers_.silent_until) {
    FailAll(absl::DeadlineExceededError(
        absl::StrCat(AliveNames(), " neither ended nor said anything for ", Seconds(options_.progress_deadline),
                     " (deadlines.progress_deadline_s) after ", strsignal(stop_signal_))));
  }
}

absl::Status Launcher::RestIsLate() const {
  const std::string late =
      absl::StrCat(AliveNames(), " did not end within three leases (", Seconds(3 * options_.lease), ") after ");
  if (Alive(Kind::kTrainer) == 0) return absl::InternalError(late + "the last trainer");
  if (done_by_ < 0) {
    return absl::UnavailableError(absl::StrCat(EndedServers(), " ended before the trainers were done: ", late,
                                               "it; was it asked to end before they had joined?"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(late, Alive(Kind::kServer) == 0 ? "the last server" : EndedServers(),
                   ": it is stopped, or waits for what does not come, such as a file server that is gone"));
}

void Launcher::LookForFrozen() {
  const absl::Time now = Clock::Real()->Now();
  std::vector<FrozenWatch::State> states;
  for (const Member& member : members_) {
    states.push_back(!member.alive()             ? FrozenWatch::State::kEnded
                     : member.process->stopped() ? FrozenWatch::State::kStopped
                                                 : FrozenWatch::State::kRuns);
  }
  frozen_watch_.Look(states, now);
  if (ending_) return;
  const bool paused = frozen_watch_.paused();
  const std::string why =
      paused ? absl::StrCat("was stopped by a signal (SIGSTOP), as all others, for ",
                            Seconds(options_.progress_deadline), " (deadlines.progress_deadline_s)")
             : absl::StrCat("was stopped by a signal (SIGSTOP) for ", may_restart_ ? "a lease (" : "two leases (",
                            Seconds((may_restart_ ? 1 : 2) * options_.lease), ")");
  for (const size_t i : frozen_watch_.TakeFrozen(now)) {
    KillFrozen(members_[i], why);
    if (!options_.keep_going || !training_) EndAll();
  }
}

void Launcher::KillFrozen(const Member& member, const std::string& why) {
  const std::string text = absl::StrCat(member.process->name(), " ", why, ": killed");
  Say(text);
  // One that has lost a peer has lost this one.
  if (culprit_.has_value() && members_[*culprit_].process->ending()->code() == kExitPeerLost) culprit_.reset();
  if (failure_.ok() && !culprit_.has_value()) failure_ = absl::DeadlineExceededError(text);
  member.process->Signal(SIGKILL);
}

void Launcher::FailAll(absl::Status failure) {
  timers_.rest_ends_by = timers_.silent_until = absl::InfiniteFuture();
  if (ending_) return;
  Say(std::string(failure.message()));
  if (failure_.ok()) failure_ = std::move(failure);
  EndAll();
}

void Launcher::PollOnce(absl::Time until) {
  std::vector<pollfd> fds = {{.fd = reaper_.fd(), .events = POLLIN, .revents = 0}};
  for (const Console* console : {&out_, &err_}) {
    if (console->pending()) fds.push_back({.fd = console->fd(), .events = POLLOUT, .revents = 0});
  }
  hosts_.AddTo(&fds);
  // Round up, so that a timer has passed when poll returns. A day at most, since poll takes milliseconds as an int.
  const absl::Duration left =
      std::clamp(std::min(until, hosts_.next_beat()) - Clock::Real()->Now(), absl::ZeroDuration(), absl::Hours(24));
  poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left + absl::Microseconds(999))));
  hosts_.Work();
  out_.Flush();
  err_.Flush();
  reaper_.Take({.on_stop = [this](int signal) { OnStopSignal(signal); },
                .on_stopped = [this](pid_t pid, bool stopped) { hosts_.SetStopped(pid, stopped); },
                .reap = [this](pid_t pid) { return hosts_.Reap(pid); }});
  for (Member& member : members_) {
    if (member.seen || member.alive()) continue;
    member.seen = true;
    OnEnd(member);
  }
}

void Launcher::OnStopSignal(int signal) {
  const bool second = stop_signal_ != 0;
  // The terminal and the shell may both send SIGHUP when the terminal is closed.
  if (second && signal == SIGHUP) return;
  const absl::Time now = Clock::Real()->Now();
  if (signal == SIGTERM && now < same_until_) return;
  if (signal == SIGTERM && !second) same_until_ = now + kSameSigterm;
  if (!second) stop_signal_ = signal;
  if (second) {
    second_signal_ = stopped_at_once_ = true;
    Say(absl::StrCat("second signal (", strsignal(signal), "): killing ", AliveNames()));
    KillAll();
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
  if (page_state_ != nullptr) page_state_->SetJob("stopping", 0, strsignal(signal));
  timers_.silent_until = now + options_.progress_deadline;
  SignalAll(signal);
}

void Launcher::OnEnd(Member& member) {
  const Ending ending = *member.process->ending();
  if (page_state_ != nullptr) {
    page_state_->SetEnd(member.on_page, ending.lost() ? "lost" : "exited", ending.code());
  }
  const bool messenger = ending.code() == kExitPeerLost && !ending.lost();
  const bool failed = !EndedWell(member);
  const bool blame = failed && !stopped_at_once_ && failure_.ok() &&
                     // The blame passes on only from a process that has lost a peer, and only until the others are
                     // ended.
                     (!culprit_.has_value() || (timers_.blame_at != absl::InfiniteFuture() && !messenger));
  if (blame && !ending_) {
    culprit_ = static_cast<size_t>(&member - members_.data());
    kill_explained_ = ending.killed() ? ExplainKill(member) : "";
    const bool go_on = options_.keep_going && training_;
    Say(absl::StrCat(member.process->name(), " failed: ", ending.ToString(),
                     go_on ? "; the others go on" : (messenger ? "; waiting for the others" : "; ending the others")));
    if (!go_on && messenger) timers_.blame_at = Clock::Real()->Now() + kBlameDelay;
    if (!go_on && !messenger) EndAll();
  } else if (failed && !ending_) {
    Say(absl::StrCat(member.process->name(), " failed: ", ending.ToString()));
  }
  if (training_ && !ending_) AwaitRest(member.kind);
}

void Launcher::AwaitRest(Kind ended) {
  const bool trainers = Alive(Kind::kTrainer) > 0, servers = Alive(Kind::kServer) > 0;
  if ((!trainers && !servers) || timers_.rest_ends_by != absl::InfiniteFuture()) return;
  // Everyone is ended soon.
  if (timers_.blame_at != absl::InfiniteFuture()) return;
  // A trainer that has ended says nothing about the others, which may have further to go.
  if (trainers && ended == Kind::kTrainer) return;
  // With keep_going, trainers of other nodes go on with the servers here when those here have failed.
  if (!trainers && options_.keep_going && !options_.placement.whole_job()) return;
  timers_.rest_ends_by = Clock::Real()->Now() + 3 * options_.lease;
}

std::string Launcher::ExplainKill(const Member& member) const {
  const std::string text = absl::StrCat("launch has not sent that signal to ", member.process->name(), "; ");
  if (dynamic_cast<const ChildProcess*>(member.process) == nullptr) {
    return text + "the system does that when memory is short (see dmesg on that host)";
  }
  const MemoryFigures now = ReadMemoryFigures();
  const std::string kills = text + DescribeKills(memory_at_start_, now);
  if (!MayBeShort(memory_at_start_, now)) return kills;
  return absl::StrCat(kills, member.kind == Kind::kTrainer
                                 ? "; a trainer needs less with smaller data.shuffle_memory_mb, data.batch_size or "
                                   "train.lanes"
                                 : "; a server needs less with more servers, or with table.disk");
}

void Launcher::EndAll() {
  if (ending_) return;
  ending_ = true;
  timers_.blame_at = timers_.rest_ends_by = timers_.silent_until = absl::InfiniteFuture();
  // What the others would still do, the next start does again.
  timers_.kill_at =
      Clock::Real()->Now() + (may_restart_ ? std::min(kRestartGrace, 2 * options_.lease) : 2 * options_.lease);
  SignalAll(SIGTERM);
}

void Launcher::SignalAll(int signal) {
  for (Member& member : members_) {
    member.process->Signal(signal);
    // A process that is stopped (SIGSTOP) hears no other signal.
    if (signal != SIGKILL) member.process->Signal(SIGCONT);
  }
}

void Launcher::KillAll() {
  SignalAll(SIGKILL);
  timers_.give_up_at = Clock::Real()->Now() + kGiveUp;
}

int Launcher::Alive(std::optional<Kind> kind) const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.alive() && (!kind.has_value() || member.kind == *kind);
  }));
}

bool Launcher::EndedWell(const Member& member) const {
  return member.ended_with(kExitOk) || member.ended_with(options_.stop_code);
}

bool Launcher::JobStopped() const {
  return options_.stop_code != kExitOk && std::any_of(members_.begin(), members_.end(), [this](const Member& member) {
           return member.ended_with(options_.stop_code);
         });
}

std::string Launcher::AliveNames() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (member.alive()) names.push_back(member.process->name());
  }
  return absl::StrJoin(names, ", ");
}

std::string Launcher::EndedServers() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (member.kind != Kind::kServer || member.alive()) continue;
    names.push_back(absl::StrCat(member.process->name(), " (", member.process->ending()->ToString(), ")"));
  }
  return absl::StrJoin(names, ", ");
}

void Launcher::MergeProfile() {
  if (options_.profile.empty() || members_.empty()) return;
  std::vector<ProfilePart> parts;
  for (const Member& member : members_) {
    const bool server = member.kind == Kind::kServer;
    parts.push_back({ProfileName(server, member.id), ProfileFile(options_, server, member.id)});
  }
  const absl::StatusOr<std::string> table = MergeProfiles(parts, options_.profile);
  if (!table.ok()) return Say(absl::StrCat("no profile: ", table.status().message()));
  for (const absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(*table), '\n')) {
    out_.Line(std::string(line));
  }
  for (const ProfilePart& part : parts) {
    if (::unlink(part.file.c_str()) != 0 && errno != ENOENT) {
      Say(absl::StrCat("cannot remove ", part.file, ": ", std::strerror(errno)));
    }
  }
}

AttemptEnd Launcher::Finish() {
  AttemptEnd end{.stopped = stop_signal_ != 0,
                 .never_began = members_.empty() && !failure_.ok() && !hosts_.Interrupted()};
  if (culprit_.has_value()) {
    const Process& process = *members_[*culprit_].process;
    end.code = process.ending()->code();
    end.why = absl::StrCat(process.name(), " failed: ", process.ending()->ToString());
    Say(absl::StrCat(end.why, "; the last lines of ", process.log_file(), ":"));
    for (const std::string& line : process.last_lines()) Say("  " + line);
    if (process.last_lines().empty()) Say("  (it said nothing)");
    if (!kill_explained_.empty()) Say(kill_explained_);
  } else if (!failure_.ok()) {
    end.code = ExitCodeOf(failure_);
    end.why = std::string(failure_.message());
    // Repeated behind the last lines of the processes. Before any of them was started it is the last line already.
    if (!members_.empty()) Say(end.why);
  }
  const bool killed = second_signal_ || (stopped_at_once_ && options_.stop_code == kExitOk);
  if (killed) end.code = 128 + stop_signal_;
  const bool well = end.code == kExitOk;
  if (well && (stopped_at_once_ || JobStopped())) {
    end.code = options_.stop_code;
    end.stopped = true;
  }
  const bool chief_done = !done_line_.empty() && (well || options_.keep_going);
  if (members_.empty()) end.unreached = hosts_.Missing();
  MergeProfile();
  if (chief_done) end.done_line = done_line_;
  return end;
}

// Starts the job, and again after a failure that may not repeat (LaunchOptions.restarts).
class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options) : options_(options) {}
  ~Supervisor() {
    if (log_dir_lock_ >= 0) close(log_dir_lock_);
  }

  int Run();

 private:
  absl::Status TakeOver();
  absl::Status LockLogDir();
  absl::Status StartPage();
  // Returns the options of the next start. `without`: hosts that did not answer.
  absl::StatusOr<LaunchOptions> NextOptions(const std::vector<std::string>& without);
  // Returns whether the job is to be started again, and says why not if it failed.
  bool MayStartAgain(const AttemptEnd& end);
  // Returns whether one more restart is within the limit, now.
  bool RestartIsLeft() const;
  // Says what has failed and what comes, and waits; false if a signal ends the job meanwhile.
  bool AwaitRestart(const AttemptEnd& end, absl::Duration lasted);
  int Finish(const AttemptEnd& end);

  const LaunchOptions& options_;
  Surroundings s_;
  std::unique_ptr<JobPage> page_;
  int log_dir_lock_ = -1;
  std::vector<absl::Time> restarts_;  // when
  absl::Duration lost_;               // from failures to the starts behind them
  absl::Duration back_off_;           // before the next restart
  int stop_signal_ = 0;               // that came between two starts
};

absl::Status Supervisor::LockLogDir() {
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

absl::Status Supervisor::StartPage() {
  if (options_.page_port < 0) return absl::OkStatus();
  s_.page_state = std::make_unique<JobPageState>(options_.page_job);
  ASSIGN_OR_RETURN(page_, JobPage::Start(
                              s_.page_state.get(), [&options = options_] { return ExplainJob(options); },
                              options_.page_address, options_.page_port));
  s_.Say(absl::StrCat("the job's page is ", page_->url(), "/"));
  return absl::OkStatus();
}

absl::Status Supervisor::TakeOver() {
  RETURN_IF_ERROR(s_.reaper.TakeOver());
  RETURN_IF_ERROR(LockLogDir());
  return StartPage();
}

bool Supervisor::RestartIsLeft() const {
  const RestartLimit& limit = options_.restarts;
  const absl::Time since = limit.per_hour ? Clock::Real()->Now() - absl::Hours(1) : absl::InfinitePast();
  const auto counted = std::count_if(restarts_.begin(), restarts_.end(), [&](absl::Time at) { return at > since; });
  return counted < limit.most;
}

bool Supervisor::MayStartAgain(const AttemptEnd& end) {
  if (options_.restarts.most == 0 || end.stopped || end.code == kExitOk) return false;
  const auto gives_up = [&](const std::string& why) {
    s_.Say(absl::StrCat("the job is not started again: ", why));
    return false;
  };
  if (end.code == kExitBadInput || end.code == kExitDataLoss) {
    return gives_up(absl::StrCat("it would fail again (exit code ", end.code, ")"));
  }
  // A host or a port that has never worked.
  if (end.never_began && restarts_.empty()) return gives_up("it has not begun");
  if (!RestartIsLeft()) return gives_up(absl::StrCat("no restart is left (", options_.restarts.text, ")"));
  return true;
}

bool Supervisor::AwaitRestart(const AttemptEnd& end, absl::Duration lasted) {
  // The first restart does not wait, nor does one after a start that has lasted.
  back_off_ = restarts_.empty() || lasted > kLasted ? absl::ZeroDuration()
                                                    : std::clamp(2 * back_off_, kFirstBackOff, kMostBackOff);
  restarts_.push_back(Clock::Real()->Now());
  const std::string from = !options_.keeps_checkpoints ? "its beginning: it keeps no checkpoints"
                           : s_.saved_step >= 0        ? absl::StrCat("step ", s_.saved_step)
                                                       : "its newest checkpoint, or its beginning if it has none";
  const std::string line = absl::StrCat("restart ", restarts_.size(), " (", options_.restarts.text, "): ", end.why,
                                        "; the job starts again from ", from,
                                        back_off_ > absl::ZeroDuration() ? " in " + Seconds(back_off_) : "");
  s_.Say(line);
  if (s_.page_state != nullptr) s_.page_state->SetJob("starting", 0, line);
  const absl::Time until = Clock::Real()->Now() + back_off_;
  do {
    pollfd fds[] = {{.fd = s_.reaper.fd(), .events = POLLIN, .revents = 0}};
    const absl::Duration left = std::max(until - Clock::Real()->Now(), absl::ZeroDuration());
    poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(left + absl::Microseconds(999))));
    s_.out.Flush();
    s_.err.Flush();
    s_.reaper.Take({.on_stop = [this](int signal) { stop_signal_ = signal; },
                    .on_stopped = [](pid_t, bool) {},
                    .reap = [](pid_t) { return false; }});
  } while (stop_signal_ == 0 && Clock::Real()->Now() < until);
  if (stop_signal_ == 0) return true;
  s_.Say(absl::StrCat(strsignal(stop_signal_), ": the job is not started again"));
  return false;
}

absl::StatusOr<LaunchOptions> Supervisor::NextOptions(const std::vector<std::string>& without) {
  LaunchOptions next = options_;
  next.log_dir = JoinPath(options_.log_dir, absl::StrCat("restart.", restarts_.size()));
  RETURN_IF_ERROR(CreateDirectories(next.log_dir));
  next.trainer_arguments.insert(next.trainer_arguments.end(), options_.restart_arguments.begin(),
                                options_.restart_arguments.end());
  if (options_.keeps_checkpoints) next.trainer_arguments.push_back(absl::StrCat("--restarts=", restarts_.size()));
  if (without.empty() || options_.place_without == nullptr) return next;
  absl::StatusOr<Placement> fewer = options_.place_without(without);
  if (fewer.ok()) {
    s_.Say(absl::StrCat("goes on without ", absl::StrJoin(without, ", "), ": ", fewer->trainers, " of ",
                        options_.placement.trainers, " trainers"));
    next.placement = *std::move(fewer);
  } else {
    s_.Say(absl::StrCat("tries ", absl::StrJoin(without, ", "), " again: ", fewer.status().message()));
  }
  return next;
}

int Supervisor::Run() {
  AttemptEnd end;
  if (const absl::Status status = TakeOver(); !status.ok()) {
    s_.Say(std::string(status.message()));
    end = {.code = ExitCodeOf(status), .why = std::string(status.message())};
    return Finish(end);
  }
  LaunchOptions options = options_;
  while (true) {
    const absl::Time begun = Clock::Real()->Now();
    end = Launcher(options, &s_, options_.restarts.most > 0 && RestartIsLeft()).Run();
    const absl::Time ended = Clock::Real()->Now();
    if (!MayStartAgain(end)) break;
    // Without checkpoints all of the start is lost.
    if (!options_.keeps_checkpoints) lost_ += ended - begun;
    if (!AwaitRestart(end, ended - begun)) {
      end.code = options_.stop_code;
      end.stopped = true;
      break;
    }
    absl::StatusOr<LaunchOptions> next = NextOptions(end.unreached);
    if (!next.ok()) {
      s_.Say(std::string(next.status().message()));
      end = {.code = ExitCodeOf(next.status()), .why = std::string(next.status().message())};
      break;
    }
    options = *std::move(next);
    lost_ += Clock::Real()->Now() - ended;
  }
  return Finish(end);
}

int Supervisor::Finish(const AttemptEnd& end) {
  const bool stopped = end.stopped && end.code == options_.stop_code;
  if (s_.page_state != nullptr) {
    s_.page_state->SetJob(end.code == kExitOk ? "done" : stopped ? "stopped" : "failed", end.code, end.why);
  }
  if (!end.done_line.empty()) {
    // A job with checkpoints knows itself what its restarts have cost.
    const bool told = restarts_.empty() || end.done_line.find(" restarts=") != std::string::npos;
    s_.out.Line(told ? end.done_line
                     : absl::StrCat(end.done_line, " restarts=", restarts_.size(),
                                    absl::StrFormat(" lost_s=%.1f", absl::ToDoubleSeconds(lost_))));
  }
  if (page_ != nullptr) page_->AwaitLastLook(absl::Seconds(3));
  page_ = nullptr;
  s_.out.Drain(options_.lease);
  int code = end.code;
  // A reader that is gone wants no more lines, and who has closed the output never wanted any.
  if (s_.out.error() != 0 && s_.out.error() != EPIPE && s_.out.error() != EBADF) {
    s_.Say(absl::StrCat("the standard output cannot be written: ", strerror(s_.out.error()),
                        "; the log files have what was not shown"));
    if (code == kExitOk) code = kExitFailure;
  }
  s_.err.Drain(options_.lease);
  return code;
}

}  // namespace

absl::StatusOr<RestartLimit> ParseRestarts(const std::string& name, const std::string& text) {
  RestartLimit limit{.text = absl::StrCat(name, "=", text)};
  std::string_view number = text;
  limit.per_hour = number.ends_with("/hour");
  if (limit.per_hour) number.remove_suffix(5);
  if (absl::SimpleAtoi(std::string(number), &limit.most) && limit.most >= 0) return limit;
  return absl::InvalidArgumentError(
      absl::StrCat(limit.text, ": must be a number of restarts, or a number in each hour such as 3/hour; 0: none"));
}

int Launch(const LaunchOptions& options) {
  google::InitGoogleLogging("launch");
  FLAGS_logtostderr = true;
  CHECK_GT(options.placement.trainers, 0);
  return Supervisor(options).Run();
}

}  // namespace weir
