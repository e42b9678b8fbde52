#include "framework/watch/event_log.h"

#include <utility>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr absl::Duration kLeave = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Create(const std::string& directory, absl::Duration interval) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file, EventFile::Create(directory));
  std::unique_ptr<EventLog> log(new EventLog(std::move(file)));
  log->thread_ = StartThread(
      "weir-events", [file = log->file_, state = log->state_, interval] { Write(file.get(), state.get(), interval); });
  return log;
}

void EventLog::Write(EventFile* file, State* state, absl::Duration interval) {
  bool failed = false, stop = false;
  while (!stop) {
    {
      MutexLock lock(&state->mu);
      if (!state->stop) state->changed.WaitWithTimeout(&state->mu, interval);
      stop = state->stop;
    }
    const absl::Status status = file->Flush();
    if (!status.ok() && !failed) {
      LOG(WARNING) << "event files for TensorBoard: " << status.message() << "; the training goes on without them";
    }
    failed = failed || !status.ok();
  }
  MutexLock lock(&state->mu);
  state->ended = true;
  state->changed.SignalAll();
}

EventLog::~EventLog() {
  bool ended;
  {
    const absl::Time until = Clock::Real()->Now() + kLeave;
    MutexLock lock(&state_->mu);
    state_->stop = true;
    state_->changed.SignalAll();
    while (!state_->ended && Clock::Real()->Now() < until) {
      state_->changed.WaitWithTimeout(&state_->mu, until - Clock::Real()->Now());
    }
    ended = state_->ended;
  }
  if (ended) {
    thread_.join();
    return;
  }
  thread_.detach();
  LOG(WARNING) << "event files for TensorBoard: the disk of " << file_->path() << " has not answered within "
               << absl::FormatDuration(kLeave) << "; what was added last is lost";
}

}  // namespace weir
