#include "pserver/member/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_message.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/member/messages.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

// Returns true if a server says that this trainer has lost its lease.
bool IsExpulsion(const absl::Status& answer) {
  return absl::IsFailedPrecondition(answer) && absl::EndsWith(answer.message(), kCannotGoOn);
}

// Servers that have heard a last heart-beat. Thread-safe; answers may come when nobody waits any more.
class LastHeard {
 public:
  explicit LastHeard(size_t servers) : by_(servers, false) {}

  void Hear(int server, const absl::Status& answer) {
    MutexLock lock(&mu_);
    by_[static_cast<size_t>(server)] = true;
    expelled_ |= IsExpulsion(answer);
    changed_.SignalAll();
  }
  bool by(int server) {
    MutexLock lock(&mu_);
    return by_[static_cast<size_t>(server)];
  }
  bool expelled() {
    MutexLock lock(&mu_);
    return expelled_;
  }
  // Waits until all servers of `wanted` have heard it, for `most` of real time. Returns whether they have.
  bool Await(const std::vector<bool>& wanted, absl::Duration most) {
    const absl::Time until = Clock::Real()->Now() + most;
    MutexLock lock(&mu_);
    while (true) {
      bool all = true;
      for (size_t s = 0; s < wanted.size(); ++s) all &= !wanted[s] || by_[s];
      if (all) return true;
      const absl::Duration left = until - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitWithTimeout(&mu_, left);
    }
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<bool> by_ ABSL_GUARDED_BY(mu_);
  bool expelled_ ABSL_GUARDED_BY(mu_) = false;
};

// Takes a server's answer to a heart-beat. `counters`: null: it is not counted.
void TakeAnswer(int server, bool needs_all_trainers, absl::Time now, const absl::StatusOr<Slices>& answer,
                Sessions* sessions, JobView* job, CallCounters* counters) {
  if (!answer.ok()) {
    if (IsRetryable(answer.status())) return;  // silence; the lease decides
    sessions->Heard(server, now);
    job->Refused(answer.status(), IsExpulsion(answer.status()));
    return;
  }
  sessions->Heard(server, now);
  if (counters != nullptr) counters->Answer(Method::kHeartbeat, TotalSize(*answer));
  v1::HeartbeatReply reply;
  if (!reply.ParseFromString(Flatten(*answer))) return;
  if (reply.stop_requested()) job->RequestStop();
  job->SetAnyAwaitsFiles(reply.awaits_files());
  job->SawVersion(reply.version());
  if (reply.has_chief()) job->SetChief(reply.chief());
  for (const int trainer : reply.dead()) {
    if (server == 0 && job->SetDead(trainer)) {
      LOG(WARNING) << "trainer " << trainer << " is dead (reported by server 0); "
                   << (needs_all_trainers ? "the job ends, since a step needs all trainers" : "the others go on");
    }
  }
  const absl::Status failure = StatusOf(reply.failure(), kMaxFailureText);
  if (failure.ok()) return;
  sessions->KnowsFailure(server);
  job->Fail(failure);
}

}  // namespace

Heartbeats::Heartbeats(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
                       std::shared_ptr<Waits> waits, std::shared_ptr<CallCounters> counters)
    : settings_(*settings),
      sessions_(std::move(sessions)),
      job_(std::move(job)),
      waits_(std::move(waits)),
      counters_(std::move(counters)) {}

Heartbeats::~Heartbeats() {
  job_->Close();
  if (thread_.joinable()) thread_.join();
}

void Heartbeats::Start() {
  if (!thread_.joinable()) thread_ = StartThread("weir-heartbeat", [this] { Loop(); });
}

void Heartbeats::Loop() {
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::duration period = absl::ToChronoNanoseconds(settings_.heartbeat_period);
  do {
    Round();
    // SleepUntil returns early after a failure, so that it is passed on at once.
  } while (job_->SleepUntil(SteadyClock::now() + period));
}

void Heartbeats::Round() {
  if (job_->done()) return;
  const absl::Duration lease = settings_.lease;
  const absl::Time now = settings_.clock->Now();
  // After a sleep of this process itself, the silence of servers means nothing.
  if (now - last_round_ > settings_.heartbeat_period + lease / 2) sessions_->ExcuseAll(now);
  std::vector<int> joined;
  const std::vector<Sessions::Server> servers = sessions_->All();
  for (int s = 0; s < settings_.servers(); ++s) {
    const Sessions::Server& server = servers[static_cast<size_t>(s)];
    if (server.session == 0) continue;
    joined.push_back(s);
    const absl::Duration silence = now - server.last_heard;
    if (silence > lease && !server.released) {
      job_->Fail(absl::UnavailableError(absl::StrCat(settings_.transport->Describe(s), " (", server.process,
                                                     ") is dead: ", settings_.Self(), " has not heard from it for ",
                                                     SecondsText(silence))));
    }
  }
  job_->RelayBegins();
  last_round_ = now;
  for (const int s : joined) Send(s);
}

void Heartbeats::Send(int server) {
  v1::HeartbeatRequest request;
  *request.mutable_caller() = sessions_->CallerFor(server);
  if (request.caller().session() == 0 || job_->expelled()) return;
  request.set_step(job_->step());
  const bool awaits_files = job_->awaits_files() && waits_->awaits_batches();
  request.set_waiting_for(awaits_files ? "new files of data.train" : waits_->on());
  if (awaits_files) request.set_awaits_files(true);
  request.set_stop_requested(job_->stop_requested());
  if (const absl::Status failure = job_->failure(); !failure.ok()) *request.mutable_failure() = StatusMessage(failure);
  request.set_done(job_->done());
  Slices bytes = MessageBytes(request);
  const std::shared_ptr<CallCounters> counters =
      settings_.transport->is_own(server, Method::kHeartbeat) ? nullptr : counters_;
  if (counters != nullptr) counters->Request(Method::kHeartbeat, TotalSize(bytes));
  settings_.transport->Call(server, Method::kHeartbeat, std::move(bytes), std::min(settings_.rpc, settings_.lease),
                            [server, needs_all = settings_.needs_all_trainers, sessions = sessions_, job = job_,
                             counters, clock = settings_.clock](const absl::StatusOr<Slices>& answer) {
                              TakeAnswer(server, needs_all, clock->Now(), answer, sessions.get(), job.get(),
                                         counters.get());
                            });
}

void Heartbeats::SendToAll() {
  for (int s = 0; s < settings_.servers(); ++s) Send(s);
}

bool Heartbeats::SendLast(const v1::HeartbeatRequest& last) {
  std::vector<std::pair<int, Slices>> letters;
  for (int s = 0; s < settings_.servers(); ++s) {
    v1::HeartbeatRequest request = last;
    *request.mutable_caller() = sessions_->CallerFor(s);
    if (request.caller().session() == 0) continue;
    letters.emplace_back(s, MessageBytes(request));
    // Later heart-beats would speak for an id that has been given back.
    if (last.leave()) sessions_->Close(s);
  }
  const auto heard = std::make_shared<LastHeard>(static_cast<size_t>(settings_.servers()));
  const absl::Duration most = std::min(settings_.lease, absl::Seconds(2));
  // A heart-beat that is lost on the way is sent again; by the real clock, since a fake one may stand still.
  constexpr int kTries = 10;
  for (int tries = 0; tries < kTries; ++tries) {
    // Look again: an answer to an earlier call may have come, or a lease have run out.
    const std::vector<Sessions::Server> servers = sessions_->All();
    const absl::Time now = settings_.clock->Now();
    std::vector<bool> wanted(servers.size(), false);
    for (const auto& [server, bytes] : letters) {
      const Sessions::Server& of = servers[static_cast<size_t>(server)];
      wanted[static_cast<size_t>(server)] = !of.knows_failure && !of.released && now - of.last_heard <= settings_.lease;
      if (heard->by(server) || of.knows_failure) continue;
      settings_.transport->Call(server, Method::kHeartbeat, bytes, most,
                                [heard, server = server](const absl::StatusOr<Slices>& answer) {
                                  if (!answer.ok() && IsRetryable(answer.status())) return;
                                  heard->Hear(server, answer.status());
                                });
    }
    if (heard->Await(wanted, most / kTries)) break;
  }
  return heard->expelled();
}

}  // namespace weir
