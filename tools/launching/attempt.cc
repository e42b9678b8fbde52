#include "tools/launching/attempt.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/process/stop_signals.h"

namespace weir {
namespace {

// Time that a process may take to end after another one has ended with "peer lost" because of it.
constexpr absl::Duration kBlameDelay = absl::Seconds(2);
// Time that the others have to end when one has failed, if the job is started again.
constexpr absl::Duration kRestartGrace = absl::Milliseconds(300);
// Time for another host to tell that the processes that were killed there have ended, and for ssh to end.
constexpr absl::Duration kGiveUp = absl::Seconds(5);

std::string Seconds(absl::Duration d) { return absl::StrCat(absl::ToInt64Seconds(d + absl::Milliseconds(500)), " s"); }

}  // namespace

AttemptEnd Attempt::Run() {
  if (const absl::Status status = Start(); !status.ok()) {
    blame_.Fail(status);
    display_.Say(std::string(status.message()));
    EndAll();
  }
  while (launcher_.AnyAlive() && !left_alone_) {
    OnTimers();
    PollOnce(NextTimer());
  }
  CloseHosts();
  return Finish();
}

absl::Status Attempt::Start() {
  RETURN_IF_ERROR(launcher_.ConnectHosts());
  RETURN_IF_ERROR(Await([this] { return launcher_.MissingHosts(); }, options_.ssh.timeout, "--ssh_timeout_s"));
  if (ending_) return absl::OkStatus();
  RETURN_IF_ERROR(launcher_.StartServers());
  RETURN_IF_ERROR(Await([this] { return launcher_.MissingServers(); }, options_.deadlines.connect,
                        "deadlines.connect_deadline_s of the job"));
  if (ending_) return absl::OkStatus();
  training_ = true;
  display_.SetJob("running", 0, "");
  return launcher_.StartTrainers();
}

absl::Status Attempt::Await(const std::function<absl::StatusOr<std::vector<std::string>>()>& missing,
                            absl::Duration deadline, const char* deadline_name) {
  const absl::Time start = Clock::Real()->Now();
  absl::Time warn_at = start + options_.deadlines.slow_warning;
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
      display_.Say(
          absl::StrCat("waiting for ", names, " to be ready: ", Seconds(now - start), " of ", Seconds(deadline)));
      warn_at = now + options_.deadlines.slow_warning;
    }
    PollOnce(std::min({warn_at, start + deadline, NextTimer()}));
    OnTimers();
  }
  return absl::OkStatus();
}

void Attempt::PollOnce(absl::Time until) {
  HostSet& hosts = launcher_.hosts();
  std::vector<pollfd> fds = {{.fd = reaper_.fd(), .events = POLLIN, .revents = 0}};
  display_.AddTo(&fds);
  hosts.AddTo(&fds);
  // Round up, so that a timer has passed when poll returns. A day at most, since poll takes milliseconds as an int.
  const absl::Duration left =
      std::clamp(std::min(until, hosts.next_beat()) - Clock::Real()->Now(), absl::ZeroDuration(), absl::Hours(24));
  poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left + absl::Microseconds(999))));
  hosts.Work();
  display_.Flush();
  reaper_.Take({.on_stop = [this](int signal) { OnStopSignal(signal); },
                .on_stopped = [&hosts](pid_t pid, bool stopped) { hosts.SetStopped(pid, stopped); },
                .reap = [&hosts](pid_t pid) { return hosts.Reap(pid); }});
  for (Launcher::Member& member : launcher_.members()) {
    if (member.seen || member.alive()) continue;
    member.seen = true;
    OnEnd(member);
  }
}

void Attempt::CloseHosts() {
  launcher_.hosts().Close();
  const absl::Time end = Clock::Real()->Now() + kGiveUp;
  while (launcher_.hosts().connected() && Clock::Real()->Now() < end) PollOnce(end);
}

AttemptEnd Attempt::Finish() {
  const bool begun = !launcher_.members().empty();
  AttemptEnd end{.code = blame_.code(),
                 .why = blame_.why(),
                 .stopped = stop_.signal != 0,
                 .never_began = !begun && !blame_.failure().ok() && !launcher_.hosts().Interrupted(),
                 .saved_step = launcher_.saved_step()};
  blame_.Show(begun, &display_);
  if (stop_.second || (stop_.at_once && options_.stop_code == kExitOk)) end.code = 128 + stop_.signal;
  const bool well = end.code == kExitOk;
  if (well && (stop_.at_once || launcher_.JobStopped())) {
    end.code = options_.stop_code;
    end.stopped = true;
  }
  if (!begun) end.unreached = launcher_.hosts().Unreached();
  launcher_.MergeProfile();
  if (well || options_.keep_going) end.done_line = launcher_.done_line();
  return end;
}

void Attempt::OnStopSignal(int signal) {
  const bool second = stop_.signal != 0;
  // The terminal and the shell may both send SIGHUP when the terminal is closed.
  if (second && signal == SIGHUP) return;
  const absl::Time now = Clock::Real()->Now();
  if (signal == SIGTERM && now < stop_.same_until) return;
  if (signal == SIGTERM && !second) stop_.same_until = now + kSameSigterm;
  if (!second) stop_.signal = signal;
  if (second) {
    stop_.second = stop_.at_once = true;
    display_.Say(absl::StrCat("second signal (", strsignal(signal), "): killing ", launcher_.AliveNames()));
    KillAll();
    return;
  }
  if (!training_) {
    // Servers without trainers have no step border at which they could end.
    stop_.at_once = true;
    display_.Say(absl::StrCat(strsignal(signal), " before the trainers were started: ending the servers"));
    EndAll();
    return;
  }
  display_.Say(absl::StrCat(strsignal(signal), " is passed on to ", launcher_.AliveNames(),
                            "; a second signal stops them at once"));
  display_.SetJob("stopping", 0, strsignal(signal));
  timers_.silent_until = now + options_.deadlines.progress;
  launcher_.SignalAll(signal);
}

void Attempt::OnEnd(const Launcher::Member& member) {
  const Ending& ending = *member.process->ending();
  display_.SetEnd(member.on_page, ending);
  const bool failed = !launcher_.EndedWell(member);
  if (failed && !ending_) {
    // The blame passes on only until the others are ended.
    const bool passes = timers_.blame_at != absl::InfiniteFuture();
    const bool blamed = !stop_.at_once && blame_.Take(member, passes);
    const bool messenger = LostAPeer(ending);
    const bool go_on = options_.keep_going && training_;
    const char* const next = !blamed     ? ""
                             : go_on     ? "; the others go on"
                             : messenger ? "; waiting for the others"
                                         : "; ending the others";
    display_.Say(absl::StrCat(member.process->name(), " failed: ", ending.ToString(), next));
    if (blamed && !go_on && messenger) timers_.blame_at = Clock::Real()->Now() + kBlameDelay;
    if (blamed && !go_on && !messenger) EndAll();
  }
  if (training_ && !ending_) AwaitRest(member.server);
}

void Attempt::OnTimers() {
  const absl::Time now = Clock::Real()->Now();
  const auto passes = [now](absl::Time* timer) {
    if (now < *timer) return false;
    *timer = absl::InfiniteFuture();
    return true;
  };
  if (passes(&timers_.kill_at)) {
    if (!may_restart_) {
      display_.Say(absl::StrCat(launcher_.AliveNames(), " did not end within two leases (",
                                Seconds(2 * options_.deadlines.lease), "): killed"));
    }
    KillAll();
  }
  if (passes(&timers_.give_up_at)) {
    launcher_.hosts().Abandon(absl::DeadlineExceededError(absl::StrCat(
        launcher_.AliveNames(), ": no word of its end within ", Seconds(kGiveUp), " after it was killed")));
    timers_.leave_at = now + kGiveUp;
  }
  if (passes(&timers_.leave_at)) LeaveAlone();
  LookForFrozen();
  if (passes(&timers_.blame_at)) {
    // They are whom the messenger has lost.
    for (const size_t i : frozen_watch_.Stopped()) {
      KillFrozen(launcher_.members()[i], "was stopped by a signal (SIGSTOP), and the others have lost it");
    }
    EndAll();
  }
  if (passes(&timers_.rest_ends_by)) FailAll(RestIsLate());
  if (passes(&timers_.silent_until)) {
    const absl::Time until = launcher_.last_line_at() + options_.deadlines.progress;
    if (now < until) {
      timers_.silent_until = until;
    } else {
      FailAll(absl::DeadlineExceededError(absl::StrCat(
          launcher_.AliveNames(), " neither ended nor said anything for ", Seconds(options_.deadlines.progress),
          " (deadlines.progress_deadline_s) after ", strsignal(stop_.signal))));
    }
  }
}

absl::Time Attempt::NextTimer() const {
  return std::min({timers_.kill_at, timers_.give_up_at, timers_.blame_at, timers_.rest_ends_by, timers_.silent_until,
                   timers_.leave_at, ending_ ? absl::InfiniteFuture() : frozen_watch_.next()});
}

void Attempt::LeaveAlone() {
  left_alone_ = true;
  blame_.Fail(absl::DeadlineExceededError(absl::StrCat(
      launcher_.AliveNames(), " cannot be killed, and is left alone: does it wait for a file server that is gone?")));
  display_.Say(std::string(blame_.failure().message()));
}

void Attempt::AwaitRest(bool server_ended) {
  const bool trainers = launcher_.AliveTrainers() > 0, servers = launcher_.AliveServers() > 0;
  if ((!trainers && !servers) || timers_.rest_ends_by != absl::InfiniteFuture()) return;
  // Everyone is ended soon.
  if (timers_.blame_at != absl::InfiniteFuture()) return;
  // A trainer that has ended says nothing about the others, which may have further to go.
  if (trainers && !server_ended) return;
  // With keep_going, trainers of other nodes go on with the servers here when those here have failed.
  if (!trainers && options_.keep_going && !options_.placement.whole_job()) return;
  timers_.rest_ends_by = Clock::Real()->Now() + 3 * options_.deadlines.lease;
}

absl::Status Attempt::RestIsLate() const {
  const std::string late = absl::StrCat(launcher_.AliveNames(), " did not end within three leases (",
                                        Seconds(3 * options_.deadlines.lease), ") after ");
  if (launcher_.AliveTrainers() == 0) return absl::InternalError(late + "the last trainer");
  if (launcher_.done_line().empty()) {
    return absl::UnavailableError(absl::StrCat(launcher_.EndedServers(), " ended before the trainers were done: ", late,
                                               "it; was it asked to end before they had joined?"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat(late, launcher_.AliveServers() == 0 ? "the last server" : launcher_.EndedServers(),
                   ": it is stopped, or waits for what does not come, such as a file server that is gone"));
}

void Attempt::LookForFrozen() {
  const absl::Time now = Clock::Real()->Now();
  std::vector<FrozenWatch::State> states;
  for (const Launcher::Member& member : launcher_.members()) {
    states.push_back(!member.alive()             ? FrozenWatch::State::kEnded
                     : member.process->stopped() ? FrozenWatch::State::kStopped
                                                 : FrozenWatch::State::kRuns);
  }
  frozen_watch_.Look(states, now);
  if (ending_) return;
  const bool paused = frozen_watch_.paused();
  const std::string why = paused
                              ? absl::StrCat("was stopped by a signal (SIGSTOP), as all others, for ",
                                             Seconds(options_.deadlines.progress), " (deadlines.progress_deadline_s)")
                              : absl::StrCat("was stopped by a signal (SIGSTOP) for ",
                                             may_restart_ ? "a lease (" : "two leases (", Seconds(frozen_limit()), ")");
  for (const size_t i : frozen_watch_.TakeFrozen(now)) {
    KillFrozen(launcher_.members()[i], why);
    if (!options_.keep_going || !training_) EndAll();
  }
}

void Attempt::KillFrozen(const Launcher::Member& member, const std::string& why) {
  const std::string text = absl::StrCat(member.process->name(), " ", why, ": killed");
  display_.Say(text);
  blame_.TakeFrozen(text);
  member.process->Signal(SIGKILL);
}

void Attempt::EndAll() {
  if (ending_) return;
  ending_ = true;
  timers_.blame_at = timers_.rest_ends_by = timers_.silent_until = absl::InfiniteFuture();
  // The next start does again all that the others would still do.
  const absl::Duration patience = 2 * options_.deadlines.lease;
  timers_.kill_at = Clock::Real()->Now() + (may_restart_ ? std::min(kRestartGrace, patience) : patience);
  launcher_.SignalAll(SIGTERM);
}

void Attempt::FailAll(const absl::Status& failure) {
  timers_.rest_ends_by = timers_.silent_until = absl::InfiniteFuture();
  if (ending_) return;
  display_.Say(std::string(failure.message()));
  blame_.Fail(failure);
  EndAll();
}

void Attempt::KillAll() {
  launcher_.SignalAll(SIGKILL);
  timers_.give_up_at = Clock::Real()->Now() + kGiveUp;
}

}  // namespace weir
