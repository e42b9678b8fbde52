#include "tools/launching/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "tools/hosts/reaper.h"
#include "tools/launching/attempt.h"
#include "tools/launching/display.h"

namespace weir {
namespace {

// A start that lasts this long has gone well: the restart after it comes at once, as the first one does. Each other
// restart comes after a pause, which doubles each time.
constexpr absl::Duration kLasted = absl::Minutes(1);
constexpr absl::Duration kFirstBackOff = absl::Seconds(1);
constexpr absl::Duration kMostBackOff = absl::Minutes(1);

// Starts the job, and again after a failure that may not repeat (Restarts).
class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options) : options_(options), display_(options) {}
  ~Supervisor() {
    if (log_dir_lock_ >= 0) close(log_dir_lock_);
  }

  int Run();

 private:
  absl::Status TakeOver();
  absl::Status LockLogDir();
  // Returns the options of the next start. `without`: hosts that did not answer.
  absl::StatusOr<LaunchOptions> NextOptions(const std::vector<std::string>& without);
  // Returns whether the job is to be started again. Says why not, if restarts were asked for and the job has failed.
  bool MayStartAgain(const AttemptEnd& end);
  // Returns how many more restarts are within the limit, now.
  int64_t RestartsLeft() const;
  // Says what has failed and what comes, and waits; false if a signal ends the job meanwhile.
  bool AwaitRestart(const AttemptEnd& end, absl::Duration lasted);
  int Finish(const AttemptEnd& end);

  const LaunchOptions& options_;
  Display display_;
  Reaper reaper_;
  int log_dir_lock_ = -1;
  std::vector<absl::Time> restarts_;  // times of restarts
  absl::Duration lost_;               // from failures to the next starts; without checkpoints the failed starts, too
  absl::Duration back_off_;           // before the next restart
  int stop_signal_ = 0;               // signal that came between two starts; 0: none
  int64_t saved_step_ = -1;           // of the newest checkpoint that is known; -1: none
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

absl::Status Supervisor::TakeOver() {
  RETURN_IF_ERROR(reaper_.TakeOver());
  RETURN_IF_ERROR(LockLogDir());
  return display_.StartPage();
}

int64_t Supervisor::RestartsLeft() const {
  const RestartLimit& limit = options_.restarts.limit;
  const absl::Time since = limit.per_hour ? Clock::Real()->Now() - absl::Hours(1) : absl::InfinitePast();
  const auto counted = std::count_if(restarts_.begin(), restarts_.end(), [&](absl::Time at) { return at > since; });
  return limit.most - counted;
}

bool Supervisor::MayStartAgain(const AttemptEnd& end) {
  if (options_.restarts.limit.most == 0 || end.stopped || end.code == kExitOk) return false;
  const auto gives_up = [&](const std::string& why) {
    display_.Say(absl::StrCat("the job is not started again: ", why));
    return false;
  };
  if (end.code == kExitBadInput || end.code == kExitDataLoss) {
    return gives_up(absl::StrCat("it would fail again (exit code ", end.code, ")"));
  }
  // A host or a port that has never worked.
  if (end.never_began && restarts_.empty()) return gives_up("it has not begun");
  if (RestartsLeft() <= 0) return gives_up(absl::StrCat("no restart is left (", options_.restarts.limit.text, ")"));
  return true;
}

bool Supervisor::AwaitRestart(const AttemptEnd& end, absl::Duration lasted) {
  // The first restart does not wait, nor does one after a start that has lasted.
  back_off_ = restarts_.empty() || lasted > kLasted ? absl::ZeroDuration()
                                                    : std::clamp(2 * back_off_, kFirstBackOff, kMostBackOff);
  restarts_.push_back(Clock::Real()->Now());
  const std::string from = !options_.restarts.keeps_checkpoints ? "its beginning: it keeps no checkpoints"
                           : saved_step_ >= 0                   ? absl::StrCat("step ", saved_step_)
                                              : "its newest checkpoint, or its beginning if it has none";
  const std::string line =
      absl::StrCat("restart ", restarts_.size(), " (", options_.restarts.limit.text, ", ", RestartsLeft(),
                   " left): ", end.why, "; the job starts again from ", from,
                   back_off_ > absl::ZeroDuration() ? absl::StrCat(" in ", absl::ToInt64Seconds(back_off_), " s") : "");
  display_.Say(line);
  display_.SetJob("starting", 0, line);
  const absl::Time until = Clock::Real()->Now() + back_off_;
  do {
    pollfd fds[] = {{.fd = reaper_.fd(), .events = POLLIN, .revents = 0}};
    const absl::Duration left = std::max(until - Clock::Real()->Now(), absl::ZeroDuration());
    poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(left + absl::Microseconds(999))));
    display_.Flush();
    reaper_.Take({.on_stop = [this](int signal) { stop_signal_ = signal; },
                  .on_stopped = [](pid_t, bool) {},
                  .reap = [](pid_t) { return false; }});
  } while (stop_signal_ == 0 && Clock::Real()->Now() < until);
  if (stop_signal_ == 0) return true;
  display_.Say(absl::StrCat(strsignal(stop_signal_), ": the job is not started again"));
  return false;
}

absl::StatusOr<LaunchOptions> Supervisor::NextOptions(const std::vector<std::string>& without) {
  LaunchOptions next = options_;
  next.log_dir = JoinPath(options_.log_dir, absl::StrCat("restart.", restarts_.size()));
  RETURN_IF_ERROR(CreateDirectories(next.log_dir));
  next.trainer_arguments.insert(next.trainer_arguments.end(), options_.restarts.trainer_arguments.begin(),
                                options_.restarts.trainer_arguments.end());
  if (options_.restarts.keeps_checkpoints)
    next.trainer_arguments.push_back(absl::StrCat("--restarts=", restarts_.size()));
  if (without.empty() || options_.restarts.place_without == nullptr) return next;
  absl::StatusOr<Placement> fewer = options_.restarts.place_without(without);
  if (fewer.ok()) {
    display_.Say(absl::StrCat("goes on without ", absl::StrJoin(without, ", "), ": ", fewer->trainers, " of ",
                              options_.placement.trainers, " trainers"));
    next.placement = *std::move(fewer);
  } else {
    display_.Say(absl::StrCat("tries ", absl::StrJoin(without, ", "), " again: ", fewer.status().message()));
  }
  return next;
}

int Supervisor::Run() {
  AttemptEnd end;
  if (const absl::Status status = TakeOver(); !status.ok()) {
    display_.Say(std::string(status.message()));
    end = {.code = ExitCodeOf(status), .why = std::string(status.message())};
    return Finish(end);
  }
  LaunchOptions options = options_;
  while (true) {
    const absl::Time begun = Clock::Real()->Now();
    end = Attempt(options, &display_, &reaper_, /*may_restart=*/RestartsLeft() > 0).Run();
    if (end.saved_step >= 0) saved_step_ = end.saved_step;
    const absl::Time ended = Clock::Real()->Now();
    if (!MayStartAgain(end)) break;
    // Without checkpoints all of the start is lost.
    if (!options_.restarts.keeps_checkpoints) lost_ += ended - begun;
    if (!AwaitRestart(end, ended - begun)) {
      end.code = options_.stop_code;
      end.stopped = true;
      break;
    }
    absl::StatusOr<LaunchOptions> next = NextOptions(end.unreached);
    if (!next.ok()) {
      display_.Say(std::string(next.status().message()));
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
  display_.SetJob(end.code == kExitOk ? "done" : stopped ? "stopped" : "failed", end.code, end.why);
  if (!end.done_line.empty()) {
    // A job with checkpoints knows itself what its restarts have cost.
    const bool told = restarts_.empty() || end.done_line.find(" restarts=") != std::string::npos;
    display_.ShowResult(told ? end.done_line
                             : absl::StrCat(end.done_line, " restarts=", restarts_.size(),
                                            absl::StrFormat(" lost_s=%.1f", absl::ToDoubleSeconds(lost_))));
  }
  return display_.Finish(end.code);
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
