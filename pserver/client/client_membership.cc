#include "pserver/client/client_impl.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

// A server says that this trainer has lost its lease.
bool IsExpulsion(const absl::Status& answer) {
  return absl::IsFailedPrecondition(answer) && absl::EndsWith(answer.message(), kCannotGoOn);
}

// Why the job has failed, says a JoinReply or HeartbeatReply.
template <typename Reply>
absl::Status FailureIn(const Reply& reply) {
  const int code = reply.failure_code();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, reply.failure());
}

}  // namespace

absl::Status ClientImpl::CheckProbe(int server, const v1::JoinReply& reply) {
  if (options_.checkpoint_dir.empty() || options_.checkpoint_per_host || reply.checkpoint_probe().empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> token = ReadProbe(options_.checkpoint_dir, reply.checkpoint_probe());
  if (token.ok() && *token == reply.checkpoint_token()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("checkpoint directory ", options_.checkpoint_dir, " of ", Self(),
                                                    " is not the one of ", options_.transport->Describe(server), " (",
                                                    reply.process(),
                                                    "): the file that the server has written there is not seen here. "
                                                    "Share the directory, or set checkpoint.per_host: true"));
}

absl::Status ClientImpl::JoinServers() {
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::JoinRequest request;
    *request.mutable_caller() = CallerFor(s);
    request.set_server_index(s);
    request.set_plan_fingerprint(StableHash(options_.plan_text));
    request.set_plan_text(options_.plan_text);
    request.set_build(std::string(kBuild));
    request.set_arithmetic(options_.arithmetic);
    request.set_process(options_.process);
    request.set_wire_version(kWireVersion);
    request.set_incarnation(incarnation_);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    calls.push_back(
        NewCall(s, Method::kJoin, std::move(bytes), [this, s](const Slices& answer) -> absl::StatusOr<bool> {
          v1::JoinReply reply;
          if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no JoinReply");
          if (reply.next_step() < 0 || reply.next_step() > kMaxStep) {
            return absl::DataLossError(
                absl::StrCat("it speaks of step ", reply.next_step(), "; steps run from 0 to ", kMaxStep));
          }
          if (!reply.failure().empty()) {
            MutexLock lock(&shared_->mu);
            shared_->SetFailure(FailureIn(reply));
            return absl::AbortedError(reply.failure());
          }
          const absl::Status probe = CheckProbe(s, reply);
          MutexLock lock(&shared_->mu);
          shared_->sessions[static_cast<size_t>(s)] = reply.session();
          shared_->processes[static_cast<size_t>(s)] = reply.process();
          shared_->norm_rounds[static_cast<size_t>(s)] = reply.norm_rounds();
          if (s == 0) shared_->run = reply.checkpoint_token();
          if (reply.has_next_step()) {
            std::optional<int64_t>& next = shared_->takes_over;
            const int64_t seen = next.value_or(reply.next_step());
            next = reply.norm_rounds() > 0 ? std::max(seen, reply.next_step()) : std::min(seen, reply.next_step());
          }
          if (reply.has_chief() && reply.chief() >= 0 && reply.chief() < options_.plan.trainers())
            shared_->chief = reply.chief();
          shared_->last_heard[static_cast<size_t>(s)] = options_.clock->Now();
          RETURN_IF_ERROR(probe);
          return true;
        }));
  }
  return Wait(calls, "to join", OfSeconds(options_.deadlines.connect_deadline_s()));
}

absl::Status ClientImpl::Join() {
  // Heart-beats begin with the first session: a lease must not run out while another server is still missing.
  if (options_.heartbeat_thread && !heartbeat_.joinable()) {
    heartbeat_ = StartThread("weir-heartbeat", [this] { HeartbeatLoop(); });
  }
  const absl::Status joined = JoinServers();
  if (joined.ok()) return joined;
  if (!JobStatus().ok() || Retryable(joined)) {
    // A server that is not there ends the job: the others would take this trainer for the culprit.
    ReportFailure(joined);
    return joined;
  }
  v1::HeartbeatRequest leave;
  leave.set_leave(true);
  (void)SendLast(leave);
  return joined;
}

bool ClientImpl::SendLast(const v1::HeartbeatRequest& last) {
  // Outlives this call: answers may come when nobody waits any more.
  struct Heard {
    Mutex mu;
    CondVar changed;
    std::vector<bool> by ABSL_GUARDED_BY(mu);
    bool expelled ABSL_GUARDED_BY(mu) = false;
  };
  const auto heard = std::make_shared<Heard>();
  std::vector<std::pair<int, Slices>> letters;
  for (int s = 0; s < servers(); ++s) {
    v1::HeartbeatRequest request = last;
    *request.mutable_caller() = CallerFor(s);
    if (request.caller().session() == 0) continue;
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    letters.emplace_back(s, std::move(bytes));
    // Heart-beats would speak of an id that is given back.
    if (!last.leave()) continue;
    MutexLock lock(&shared_->mu);
    shared_->sessions[static_cast<size_t>(s)] = 0;
  }
  {
    MutexLock lock(&heard->mu);
    heard->by.resize(static_cast<size_t>(servers()), false);
  }
  const absl::Duration most = std::min(lease_, absl::Seconds(2));
  // One that is lost on the way is sent again; by the real clock, since a fake one may stand still.
  constexpr int kTries = 10;
  for (int tries = 0; tries < kTries; ++tries) {
    // An answer to an earlier call may still come, and a lease run out.
    std::vector<bool> wanted(static_cast<size_t>(servers()), false), knows;
    {
      const absl::Time now = options_.clock->Now();
      MutexLock lock(&shared_->mu);
      knows = shared_->knows;
      for (const auto& letter : letters) {
        const size_t s = static_cast<size_t>(letter.first);
        wanted[s] = !knows[s] && !shared_->released[s] && now - shared_->last_heard[s] <= lease_;
      }
    }
    for (const auto& [server, bytes] : letters) {
      {
        MutexLock lock(&heard->mu);
        if (heard->by[static_cast<size_t>(server)] || knows[static_cast<size_t>(server)]) continue;
      }
      options_.transport->Call(server, Method::kHeartbeat, bytes, most,
                               [heard, s = server](const absl::StatusOr<Slices>& answer) {
                                 if (!answer.ok() && Retryable(answer.status())) return;
                                 MutexLock lock(&heard->mu);
                                 heard->by[static_cast<size_t>(s)] = true;
                                 heard->expelled |= IsExpulsion(answer.status());
                                 heard->changed.SignalAll();
                               });
    }
    const absl::Time until = Clock::Real()->Now() + most / kTries;
    MutexLock lock(&heard->mu);
    while (true) {
      bool all = true;
      for (size_t s = 0; s < wanted.size(); ++s) all &= !wanted[s] || heard->by[s];
      if (all) return heard->expelled;
      const absl::Duration left = until - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) break;
      heard->changed.WaitWithTimeout(&heard->mu, left);
    }
  }
  MutexLock lock(&heard->mu);
  return heard->expelled;
}

void ClientImpl::SendHeartbeat(int server) {
  v1::HeartbeatRequest request;
  *request.mutable_caller() = CallerFor(server);
  if (request.caller().session() == 0) return;
  {
    MutexLock lock(&shared_->mu);
    if (shared_->expelled) return;
    request.set_step(shared_->step);
    request.set_waiting_for((shared_->ahead_needed ? shared_->waiting_ahead : shared_->waiting).on);
    request.set_stop_requested(shared_->stop_requested);
    if (!shared_->failure.ok()) {
      request.set_failure(std::string(shared_->failure.message()));
      request.set_failure_code(static_cast<int>(shared_->failure.code()));
    }
    request.set_done(shared_->done);
  }
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  shared_->messages.fetch_add(1, std::memory_order_relaxed);
  shared_->bytes_sent.fetch_add(static_cast<int64_t>(TotalSize(bytes)), std::memory_order_relaxed);
  shared_->wire.Request(Method::kHeartbeat, TotalSize(bytes));
  options_.transport->Call(
      server, Method::kHeartbeat, std::move(bytes), std::min(rpc_, lease_),
      [shared = shared_, server, trainers = options_.plan.trainers(),
       clock = options_.clock](absl::StatusOr<Slices> answer) {
        MutexLock lock(&shared->mu);
        if (!answer.ok()) {
          if (Retryable(answer.status())) return;  // silence; the lease decides
          shared->last_heard[static_cast<size_t>(server)] = clock->Now();
          if (shared->done) return;
          shared->expelled |= IsExpulsion(answer.status());
          shared->SetFailure(answer.status());
          return;
        }
        shared->last_heard[static_cast<size_t>(server)] = clock->Now();
        shared->bytes_received.fetch_add(static_cast<int64_t>(TotalSize(*answer)), std::memory_order_relaxed);
        shared->wire.Answer(Method::kHeartbeat, TotalSize(*answer));
        v1::HeartbeatReply reply;
        if (!reply.ParseFromString(Flatten(*answer))) return;
        if (reply.stop_requested()) shared->stop_requested = true;
        shared->version = std::max(shared->version, reply.version());
        if (reply.has_chief() && reply.chief() >= 0 && reply.chief() < trainers) shared->chief = reply.chief();
        for (const int trainer : reply.dead()) {
          if (server == 0 && trainer >= 0 && trainer < trainers && shared->dead.insert(trainer).second) {
            LOG(WARNING) << "trainer " << trainer << " is dead, says server 0; the others go on";
          }
        }
        if (reply.failure().empty()) return;
        shared->knows[static_cast<size_t>(server)] = true;
        shared->SetFailure(FailureIn(reply));
      });
}

void ClientImpl::Heartbeat() {
  const absl::Time now = options_.clock->Now();
  std::vector<int> joined;
  {
    MutexLock lock(&shared_->mu);
    if (shared_->done) return;
    // This process itself was asleep: it cannot tell who else was.
    const bool overslept = now - last_round_ > heartbeat_period_ + lease_ / 2;
    for (int s = 0; s < servers(); ++s) {
      if (shared_->sessions[static_cast<size_t>(s)] == 0) continue;
      joined.push_back(s);
      absl::Time& heard = shared_->last_heard[static_cast<size_t>(s)];
      if (overslept) heard = std::max(heard, now);
      if (now - heard > lease_ && !shared_->released[static_cast<size_t>(s)]) {
        shared_->SetFailure(absl::UnavailableError(
            absl::StrCat(options_.transport->Describe(s), " (", shared_->processes[static_cast<size_t>(s)],
                         ") is dead: ", Self(), " has not heard from it for ", SecondsText(now - heard))));
      }
    }
    shared_->relay = false;
  }
  last_round_ = now;
  for (int s : joined) SendHeartbeat(s);
}

void ClientImpl::HeartbeatLoop() {
  // A step of the wall clock must not keep a sign of life back.
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::duration period = absl::ToChronoNanoseconds(heartbeat_period_);
  while (true) {
    Heartbeat();
    const SteadyClock::time_point next = SteadyClock::now() + period;
    MutexLock lock(&shared_->mu);
    // A failure is passed on at once.
    for (SteadyClock::time_point now = SteadyClock::now(); !shared_->closing && !shared_->relay && now < next;
         now = SteadyClock::now()) {
      shared_->heartbeat.WaitWithTimeout(&shared_->mu, absl::FromChrono(next - now));
    }
    if (shared_->closing) return;
  }
}

void ClientImpl::RequestStop() {
  {
    MutexLock lock(&shared_->mu);
    shared_->stop_requested = true;
  }
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
}

bool ClientImpl::StopRequested() {
  MutexLock lock(&shared_->mu);
  return shared_->stop_requested;
}

absl::Status ClientImpl::JobStatus() {
  MutexLock lock(&shared_->mu);
  return shared_->failure;
}

void ClientImpl::ReportFailure(const absl::Status& status) {
  if (status.ok()) return;
  v1::HeartbeatRequest last;
  // One that slept beyond its lease is dead to some server. That is its own end: to another, whose lease runs a moment
  // longer, it has nothing to say for the job.
  if (absl::IsFailedPrecondition(status) && SendLast(last)) return;
  {
    MutexLock lock(&shared_->mu);
    if (shared_->expelled) return;
    const bool named = absl::StartsWith(status.message(), Self());
    shared_->SetFailure(named ? status : absl::Status(status.code(), absl::StrCat(Self(), ": ", status.message())));
    last.set_step(shared_->step);
    last.set_failure(std::string(shared_->failure.message()));
    last.set_failure_code(static_cast<int>(shared_->failure.code()));
  }
  (void)SendLast(last);
}

absl::Status ClientImpl::Done() {
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = CallerFor(s);
    if (request.caller().session() == 0) continue;
    {
      MutexLock lock(&shared_->mu);
      request.set_step(shared_->step);
    }
    request.set_done(true);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    const auto accept = [this, s](const Slices& answer) -> absl::StatusOr<bool> {
      v1::HeartbeatReply reply;
      if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no HeartbeatReply");
      if (!reply.failure().empty()) return absl::AbortedError(absl::StrCat("the job has failed: ", reply.failure()));
      MutexLock lock(&shared_->mu);
      shared_->released[static_cast<size_t>(s)] = true;
      return true;
    };
    calls.push_back(NewCall(s, Method::kHeartbeat, std::move(bytes), accept));
  }
  RETURN_IF_ERROR(Wait(calls, "to acknowledge the end", 2 * lease_));
  MutexLock lock(&shared_->mu);
  shared_->done = true;
  return absl::OkStatus();
}

Client::Counters ClientImpl::counters() const {
  return {.bytes_sent = shared_->bytes_sent,
          .bytes_received = shared_->bytes_received,
          .messages = shared_->messages,
          .rows_pulled = shared_->rows_pulled,
          .rows_pushed = shared_->rows_pushed,
          .retries = shared_->retries};
}

}  // namespace weir
