#include "pserver/server_core_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/handshake.h"

namespace weir {

namespace {

// Of a caller's own words in our messages, which end up in status texts.
constexpr size_t kMaxText = 500;

}  // namespace

std::string ServerCoreImpl::Name(int trainer) const {
  const Trainer& t = trainers_[static_cast<size_t>(trainer)];
  return absl::StrCat("trainer ", trainer, t.process.empty() ? " (not joined)" : absl::StrCat(" (", t.process, ")"));
}

bool ServerCoreImpl::AllJoined() const {
  return std::none_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.state == Trainer::kAbsent; });
}

bool ServerCoreImpl::Excused(int trainer) const {
  const Trainer::State state = trainers_[static_cast<size_t>(trainer)].state;
  return !sync_ && (state == Trainer::kDead || state == Trainer::kDone);
}

absl::Status ServerCoreImpl::Aborted(int trainer) {
  if (trainer >= 0 && trainer < trainer_count_) trainers_[static_cast<size_t>(trainer)].told = true;
  return absl::AbortedError(absl::StrCat("the job has failed: ", failure_.message()));
}

absl::Status ServerCoreImpl::CheckJoin(const v1::JoinRequest& request, absl::Time now) {
  const int trainer = request.caller().trainer();
  const std::string who = absl::StrCat("trainer ", trainer, " (", request.process(), ")");
  if (request.caller().job_id() != options_.job_name) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), " runs job ", options_.job_name, ", ", who, " belongs to job ",
                                                      request.caller().job_id()));
  }
  if (request.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " speaks wire version ", kWireVersion, ", ", who, " ", request.wire_version()));
  }
  const std::string build(kBuild);
  if (request.build() != build) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " is build ", build, ", ", who, " is build ", request.build(), "; use one build for a job"));
  }
  if (request.server_index() != options_.server_id) {
    return absl::FailedPreconditionError(absl::StrCat("this is ", Self(), ", ", who, " expects server ",
                                                      request.server_index(),
                                                      " at this address; is the order of endpoints the same everywhere?"));
  }
  if (request.plan_fingerprint() != fingerprint_) {
    return absl::FailedPreconditionError(absl::StrCat("the job of ", who, " is not that of ", Self(), ": ",
                                                      FirstPlanDifference(options_.plan_text, request.plan_text())));
  }
  if (request.arithmetic() != options_.arithmetic && !options_.arithmetic.empty()) {
    const std::string text =
        absl::StrCat(Self(), " computes with ", options_.arithmetic, ", ", who, " with ", request.arithmetic(),
                     "; set train.arithmetic to what both have, or distribute.reproducible: false");
    if (sync_ && options_.reproducible) return absl::FailedPreconditionError(text);
    LOG(WARNING) << text;
  }
  if (trainer < 0 || trainer >= trainer_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", trainer, " of ", request.process(), "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  const Trainer& holder = trainers_[static_cast<size_t>(trainer)];
  if (holder.process == request.process() && holder.incarnation == request.incarnation()) {
    if (holder.state == Trainer::kDead) {
      return absl::FailedPreconditionError(absl::StrCat(Name(trainer), " was declared dead and cannot go on"));
    }
    return absl::OkStatus();  // a repeat
  }
  if (holder.state == Trainer::kJoined) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer id ", trainer, " is held by ", holder.process, " and claimed by ", request.process(),
                     "; the lease of the first runs ", SecondsText(holder.lease_until - now), " more"));
  }
  if (holder.state == Trainer::kDone) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer id ", trainer, " of ", holder.process, " has finished; ", request.process(), " comes too late"));
  }
  return absl::OkStatus();
}

void ServerCoreImpl::HandleJoin(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::JoinRequest> request = Parse<v1::JoinRequest>(bytes, "JoinRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  absl::StatusOr<v1::JoinReply> answer = [&]() -> absl::StatusOr<v1::JoinReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckJoin(*request, now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    Trainer& trainer = trainers_[static_cast<size_t>(id)];
    if (trainer.state == Trainer::kAbsent || trainer.state == Trainer::kDead) {
      const bool again = trainer.state == Trainer::kDead;
      // What has taken effect under this id, here or in the run that was resumed, has done so.
      const int64_t applied_step = trainer.applied_step;
      trainer = Trainer();
      trainer.applied_step = applied_step;
      trainer.state = Trainer::kJoined;
      if (gate_ != nullptr) gate_->Join(id);
      trainer.takes_over = again;
      trainer.process = request->process().substr(0, kMaxText);
      trainer.incarnation = request->incarnation();
      ++sessions_;
      trainer.session = StableHash(absl::StrCat(request->process(), "/", sessions_, "/", options_.process)) | 1;
      trainer.credits = std::make_shared<ReplyCredits>(options_.unread_bytes);
      trainer.progress = trainer.last_warning = now;
      connecting_since_ = now;
      LOG(INFO) << Self() << ": " << Name(id) << (again ? " takes the place of a dead one" : " has joined");
    }
    trainer.lease_until = now + lease_;
    v1::JoinReply joined;
    joined.set_server_index(options_.server_id);
    joined.set_process(options_.process);
    joined.set_session(trainer.session);
    for (int t = 0; t < trainer_count_; ++t) {
      if (trainers_[static_cast<size_t>(t)].state != Trainer::kAbsent) joined.add_joined(t);
    }
    joined.set_checkpoint_probe(probe_.name);
    joined.set_checkpoint_token(probe_.token);
    joined.set_version(version_.version);
    if (exchanges_norms_) joined.set_norm_rounds(params_->norm_rounds());
    if (trainer.takes_over) joined.set_next_step(trainer.applied_step + 1);
    return joined;
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  reply(Serialize(*answer));
}

absl::Status ServerCoreImpl::CheckCaller(const v1::Caller& caller, absl::Time now) {
  if (caller.job_id() != options_.job_name) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " runs job ", options_.job_name, ", the caller belongs to job ", caller.job_id()));
  }
  const int id = caller.trainer();
  if (id < 0 || id >= trainer_count_) {
    return absl::InvalidArgumentError(absl::StrCat("trainer id ", id, "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (trainer.state == Trainer::kAbsent) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", id, " has not joined ", Self()));
  }
  if (trainer.session != caller.session()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the lease of trainer ", id, " has passed to ", trainer.process, "; this caller cannot go on"));
  }
  if (trainer.state == Trainer::kDead) {
    return absl::FailedPreconditionError(absl::StrCat(Name(id), " was declared dead after ", SecondsText(lease_),
                                                      " without a sign of life; it cannot go on"));
  }
  trainer.lease_until = now + lease_;
  return absl::OkStatus();
}

void ServerCoreImpl::HandleHeartbeat(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::HeartbeatRequest> request = Parse<v1::HeartbeatRequest>(bytes, "HeartbeatRequest", kMaxHeaderBytes);
  if (!request.ok()) return reply(request.status());
  Actions actions;
  absl::StatusOr<v1::HeartbeatReply> answer = [&]() -> absl::StatusOr<v1::HeartbeatReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    const absl::Status known = CheckCaller(request->caller(), now);
    // In a failed job every caller hears why, the one declared dead too.
    if (!known.ok() && failure_.ok()) return known;
    v1::HeartbeatReply answer;
    if (known.ok()) {
      const int id = request->caller().trainer();
      Trainer& trainer = trainers_[static_cast<size_t>(id)];
      if (request->step() > trainer.step) {
        trainer.step = request->step();
        trainer.progress = now;
      }
      trainer.waiting_for = request->waiting_for().substr(0, kMaxText);
      if (request->stop_requested()) stop_requested_ = true;
      if (!request->failure().empty()) {
        const int code = request->failure_code();
        const bool known_code = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
        Fail(absl::Status(known_code ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                          request->failure().substr(0, kMaxText)),
             &actions);
      }
      if (request->done() && trainer.state == Trainer::kJoined) {
        trainer.state = Trainer::kDone;
        if (gate_ != nullptr) gate_->Leave(id);
        LOG(INFO) << Self() << ": " << Name(id) << " is done";
        AnswerExchanges(now, &actions);
      }
      if (!failure_.ok()) trainer.told = true;
    }
    answer.set_version(version_.version);
    answer.set_stop_requested(stop_requested_);
    if (!failure_.ok()) {
      answer.set_failure(std::string(failure_.message()));
      answer.set_failure_code(static_cast<int>(failure_.code()));
    }
    for (int t = 0; t < trainer_count_; ++t) {
      const Trainer& each = trainers_[static_cast<size_t>(t)];
      if (each.state == Trainer::kDead) answer.add_dead(t);
      if (each.state == Trainer::kDone) answer.add_done(t);
      if (each.slow) answer.add_slow(absl::StrCat(Name(t), " at step ", std::max(each.step, each.pending.step)));
    }
    return answer;
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  reply(Serialize(*answer));
}

}  // namespace weir
