#include "pserver/client_impl.h"

#include <pthread.h>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/handshake.h"

namespace weir {

absl::Status ClientImpl::CheckProbe(int server, const v1::JoinReply& reply) {
  if (options_.checkpoint_dir.empty() || options_.checkpoint_per_host || reply.checkpoint_probe().empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> token = ReadProbe(options_.checkpoint_dir, reply.checkpoint_probe());
  if (token.ok() && *token == reply.checkpoint_token()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", options_.checkpoint_dir, " of ", Self(), " is not the one of ",
      options_.transport->Describe(server), " (", reply.process(),
      "): the file that the server has written there is not seen here. Share the directory, or set checkpoint.per_host: true"));
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
    calls.push_back(NewCall(s, Method::kJoin, std::move(bytes), [this, s](const Slices& answer) -> absl::StatusOr<bool> {
      v1::JoinReply reply;
      if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no JoinReply");
      if (reply.next_step() < 0 || reply.next_step() > kMaxStep) {
        return absl::DataLossError(absl::StrCat("it speaks of step ", reply.next_step(), "; steps run from 0 to ", kMaxStep));
      }
      RETURN_IF_ERROR(CheckProbe(s, reply));
      MutexLock lock(&shared_->mu);
      shared_->sessions[static_cast<size_t>(s)] = reply.session();
      shared_->processes[static_cast<size_t>(s)] = reply.process();
      shared_->norm_rounds[static_cast<size_t>(s)] = reply.norm_rounds();
      if (reply.has_next_step()) {
        std::optional<int64_t>& next = shared_->takes_over;
        const int64_t seen = next.value_or(reply.next_step());
        next = reply.norm_rounds() > 0 ? std::max(seen, reply.next_step()) : std::min(seen, reply.next_step());
      }
      shared_->last_heard[static_cast<size_t>(s)] = options_.clock->Now();
      return true;
    }));
  }
  return Wait(calls, "to join", OfSeconds(options_.deadlines.connect_deadline_s()));
}

absl::Status ClientImpl::Join() {
  // Heart-beats begin with the first session: a lease must not run out while another server is still missing.
  if (options_.heartbeat_thread && !heartbeat_.joinable()) heartbeat_ = std::thread([this] { HeartbeatLoop(); });
  return JoinServers();
}

void ClientImpl::SendHeartbeat(int server) {
  v1::HeartbeatRequest request;
  *request.mutable_caller() = CallerFor(server);
  if (request.caller().session() == 0) return;
  {
    MutexLock lock(&shared_->mu);
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
      [shared = shared_, server, clock = options_.clock](absl::StatusOr<Slices> answer) {
        MutexLock lock(&shared->mu);
        if (!answer.ok()) {
          if (Retryable(answer.status())) return;  // silence; the lease decides
          shared->last_heard[static_cast<size_t>(server)] = clock->Now();
          if (!shared->done) shared->SetFailure(answer.status());
          return;
        }
        shared->last_heard[static_cast<size_t>(server)] = clock->Now();
        shared->bytes_received.fetch_add(static_cast<int64_t>(TotalSize(*answer)), std::memory_order_relaxed);
        shared->wire.Answer(Method::kHeartbeat, TotalSize(*answer));
        v1::HeartbeatReply reply;
        if (!reply.ParseFromString(Flatten(*answer))) return;
        if (reply.stop_requested()) shared->stop_requested = true;
        shared->version = std::max(shared->version, reply.version());
        for (const int trainer : reply.dead()) {
          if (server == 0 && shared->dead.insert(trainer).second) {
            LOG(WARNING) << "trainer " << trainer << " is dead, says server 0; the others go on";
          }
        }
        if (!reply.failure().empty()) {
          const int code = reply.failure_code();
          const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
          shared->SetFailure(
              absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, reply.failure()));
        }
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
      if (now - heard > lease_) {
        shared_->SetFailure(absl::UnavailableError(
            absl::StrCat(options_.transport->Describe(s), " (", shared_->processes[static_cast<size_t>(s)], ") is dead: ", Self(),
                         " has not heard from it for ", SecondsText(now - heard))));
      }
    }
    shared_->relay = false;
  }
  last_round_ = now;
  for (int s : joined) SendHeartbeat(s);
}

void ClientImpl::HeartbeatLoop() {
  pthread_setname_np(pthread_self(), "weir-heartbeat");
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
  {
    MutexLock lock(&shared_->mu);
    shared_->SetFailure(absl::Status(status.code(), absl::StrCat(Self(), ": ", status.message())));
  }
  // Each server's answer shows that it knows; one that does not answer soon finds out by the lease.
  const absl::Time end = options_.clock->Now() + std::min(lease_, absl::Seconds(2));
  std::vector<absl::Time> asked(static_cast<size_t>(servers()), options_.clock->Now());
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
  MutexLock lock(&shared_->mu);
  for (int looks = 0; looks < 1000 && options_.clock->Now() < end; ++looks) {
    bool all = true;
    for (int s = 0; s < servers(); ++s) {
      all &= shared_->sessions[static_cast<size_t>(s)] == 0 ||
             shared_->last_heard[static_cast<size_t>(s)] >= asked[static_cast<size_t>(s)];
    }
    if (all) return;
    shared_->changed.WaitWithTimeout(&shared_->mu, kLook);
  }
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
    calls.push_back(NewCall(s, Method::kHeartbeat, std::move(bytes), [](const Slices& answer) -> absl::StatusOr<bool> {
      v1::HeartbeatReply reply;
      if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no HeartbeatReply");
      if (!reply.failure().empty()) return absl::AbortedError(absl::StrCat("the job has failed: ", reply.failure()));
      return true;
    }));
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
