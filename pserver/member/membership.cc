#include "pserver/member/membership.h"

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/membership/limits.h"
#include "pserver/member/messages.h"
#include "pserver/protocol/handshake.h"

namespace weir {

Membership::Membership(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
                       Heartbeats* heartbeats, Calls* calls)
    : settings_(*settings),
      sessions_(std::move(sessions)),
      job_(std::move(job)),
      heartbeats_(*heartbeats),
      calls_(*calls),
      incarnation_((uint64_t{std::random_device()()} << 32) | std::random_device()()) {}

absl::Status Membership::TakeReply(int server, const v1::JoinReply& reply, const Welcome& welcome) {
  if (reply.next_step() < 0 || reply.next_step() > kMaxStep) {
    return absl::DataLossError(
        absl::StrCat("it speaks of step ", reply.next_step(), "; steps run from 0 to ", kMaxStep));
  }
  if (const absl::Status failure = StatusOf(reply.failure(), kMaxFailureText); !failure.ok()) {
    job_->Fail(failure);
    return absl::AbortedError(failure.message());
  }
  absl::Status welcomed = welcome(server, reply);
  // A server that is not welcome has to be told so.
  sessions_->Open(server, reply.session(), reply.process(), settings_.clock->Now());
  if (reply.has_chief()) job_->SetChief(reply.chief());
  return welcomed;
}

absl::Status Membership::JoinServers(const v1::JoinRequest& introduction, const Welcome& welcome) {
  std::vector<CallPtr> calls;
  for (int s = 0; s < settings_.servers(); ++s) {
    v1::JoinRequest request = introduction;
    *request.mutable_caller() = calls_.CallerFor(s);
    request.set_server_index(s);
    request.set_build(std::string(kBuild));
    request.set_process(settings_.process);
    request.set_wire_version(kWireVersion);
    request.set_incarnation(incarnation_);
    calls.push_back(Calls::New(s, Method::kJoin, MessageBytes(request),
                               [this, s, &welcome](const Slices& answer) -> absl::StatusOr<bool> {
                                 ASSIGN_OR_RETURN(v1::JoinReply reply, ParseMessage<v1::JoinReply>(answer));
                                 reply.set_process(Printable(reply.process(), kMaxText));
                                 RETURN_IF_ERROR(TakeReply(s, reply, welcome));
                                 return true;
                               }));
  }
  return calls_.Wait(calls, "to join", settings_.connect_deadline, {.until_stop = true});
}

absl::Status Membership::Join(const v1::JoinRequest& introduction, const Welcome& welcome) {
  absl::Status joined = JoinServers(introduction, welcome);
  if (joined.ok()) return joined;
  if (!job_->failure().ok() || IsRetryable(joined) || absl::IsCancelled(joined)) {
    // A server that is not there ends the job: the others would take this trainer for the culprit. So does a stop
    // before the job has begun.
    ReportFailure(joined);
    return joined;
  }
  v1::HeartbeatRequest leave;
  leave.set_leave(true);
  (void)heartbeats_.SendLast(leave);
  return joined;
}

void Membership::RequestStop() {
  job_->RequestStop();
  heartbeats_.SendToAll();
}

void Membership::ReportFailure(const absl::Status& status) {
  if (status.ok()) return;
  v1::HeartbeatRequest last;
  // A trainer that slept beyond its lease is dead to some server. That is its own end: to another server, whose lease
  // runs a moment longer, it has nothing to say for the job.
  if (absl::IsFailedPrecondition(status) && heartbeats_.SendLast(last)) return;
  const std::string self = settings_.Self();
  const bool named = absl::StartsWith(status.message(), self);
  const std::optional<absl::Status> failure = job_->FailUnlessExpelled(
      named ? status : absl::Status(status.code(), absl::StrCat(self, ": ", status.message())));
  if (!failure.has_value()) return;
  last.set_step(job_->step());
  *last.mutable_failure() = StatusMessage(*failure);
  (void)heartbeats_.SendLast(last);
}

absl::Status Membership::Done(bool stopped) {
  std::vector<CallPtr> calls;
  for (int s = 0; s < settings_.servers(); ++s) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = calls_.CallerFor(s);
    if (request.caller().session() == 0) continue;
    request.set_step(job_->step());
    request.set_done(true);
    if (stopped) request.set_stopped(true);
    calls.push_back(Calls::New(
        s, Method::kHeartbeat, MessageBytes(request), [this, s](const Slices& answer) -> absl::StatusOr<bool> {
          ASSIGN_OR_RETURN(const v1::HeartbeatReply reply, ParseMessage<v1::HeartbeatReply>(answer));
          if (const absl::Status failure = StatusOf(reply.failure(), kMaxFailureText); !failure.ok())
            return absl::AbortedError(absl::StrCat("the job has failed: ", failure.message()));
          sessions_->Release(s);
          return true;
        }));
  }
  RETURN_IF_ERROR(calls_.Wait(calls, "to acknowledge the end", 2 * settings_.lease));
  job_->SetDone();
  return absl::OkStatus();
}

}  // namespace weir
