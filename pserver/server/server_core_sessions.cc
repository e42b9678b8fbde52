#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

// Of a caller's own words in our messages, which end up in status texts.
constexpr size_t kMaxText = 500;
// Of a caller, most of it the job's name, and of a join beside the plan, which another job's may exceed somewhat.
constexpr size_t kMaxCallerBytes = size_t{16} << 10, kMaxJoinBytes = size_t{1} << 20;

// What messages and the log repeat of a join.
void TrimTexts(v1::JoinRequest* request) {
  for (std::string* text : {request->mutable_process(), request->mutable_build(), request->mutable_arithmetic(),
                            request->mutable_caller()->mutable_job_id()}) {
    if (text->size() > kMaxText) text->resize(kMaxText);
  }
}

// Proves in every later call that the caller is who joined, so nobody may work it out from names. 0 is no session.
uint64_t NewSession() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

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

void ServerCoreImpl::PassDuties() {
  if (sync_) return;
  const Trainer::State state = trainers_[static_cast<size_t>(chief_)].state;
  if (state != Trainer::kDead && state != Trainer::kDone) return;
  for (int t = 0; t < trainer_count_; ++t) {
    if (trainers_[static_cast<size_t>(t)].state != Trainer::kJoined) continue;
    if (options_.server_id == 0)
      LOG(INFO) << Self() << ": " << Name(t) << " is the chief from now on, instead of " << Name(chief_);
    chief_ = t;
    return;
  }
}

absl::Status ServerCoreImpl::Leave(int id) {
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (trainer.state != Trainer::kJoined || trainer.step >= 0 || trainer.pending.step >= 0) {
    return absl::FailedPreconditionError(absl::StrCat(Name(id), " leaves, but it has begun its work"));
  }
  LOG(INFO) << Self() << ": " << Name(id) << " has left: another server has refused it; its id is free";
  const bool again = trainer.takes_over;
  const int64_t applied_step = trainer.applied_step;
  trainer = Trainer();
  trainer.applied_step = applied_step;
  connecting_since_ = options_.clock->Now();
  if (!again) return absl::OkStatus();
  trainer.state = Trainer::kDead;
  if (gate_ != nullptr) gate_->Leave(id);
  PassDuties();
  return absl::OkStatus();
}

absl::Status ServerCoreImpl::Aborted(int trainer) {
  if (trainer >= 0 && trainer < trainer_count_) trainers_[static_cast<size_t>(trainer)].told = true;
  return absl::AbortedError(absl::StrCat("the job has failed: ", failure_.message()));
}

absl::Status ServerCoreImpl::CheckWaiting(int trainer, std::string_view what, size_t waiting) {
  if (waiting < kMaxWaitingCalls) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(Name(trainer), " has ", waiting, " ",
                                                   absl::string_view(what.data(), what.size()),
                                                   " waiting for their answers, as many as may: wait for some"));
}

absl::Status ServerCoreImpl::Admit(const Slices& message, std::string_view what) {
  static_assert(v1::HeartbeatRequest::kCallerFieldNumber == 1 && v1::PushRequest::kCallerFieldNumber == 1 &&
                v1::PullRequest::kCallerFieldNumber == 1 && v1::ExchangeRequest::kCallerFieldNumber == 1 &&
                v1::ControlRequest::kCallerFieldNumber == 1 && v1::NormsRequest::kCallerFieldNumber == 1);
  const absl::StatusOr<std::string> bytes = ReadField(message, 1, kMaxCallerBytes);
  v1::Caller caller;
  if (!bytes.ok() || !caller.ParseFromString(*bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ",
                                                   TotalSize(message), " bytes that are no such message",
                                                   bytes.ok() ? "" : absl::StrCat(": ", bytes.status().message())));
  }
  Actions actions;
  absl::Status known;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    known = CheckCaller(caller, now);
  }
  RunAll(&actions);
  return known;
}

absl::Status ServerCoreImpl::CheckJoin(const v1::JoinRequest& request, absl::Time now) {
  const int trainer = request.caller().trainer();
  const std::string who = absl::StrCat("trainer ", trainer, " (", request.process(), ")");
  if (request.caller().job_id() != options_.job_name) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), " runs job ", options_.job_name, ", ", who,
                                                      " belongs to job ", request.caller().job_id()));
  }
  if (request.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " speaks wire version ", kWireVersion, ", ", who, " ", request.wire_version()));
  }
  const std::string build(kBuild);
  if (request.build() != build) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), " is build ", build, ", ", who, " is build ",
                                                      request.build(), "; use one build for a job"));
  }
  if (request.server_index() != options_.server_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("this is ", Self(), ", ", who, " expects server ", request.server_index(),
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
    return absl::InvalidArgumentError(absl::StrCat("trainer id ", trainer, " of ", request.process(),
                                                   "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  if (!failure_.ok()) return absl::OkStatus();  // which is all that it will hear
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
    return absl::FailedPreconditionError(absl::StrCat("trainer id ", trainer, " of ", holder.process, " has finished; ",
                                                      request.process(), " comes too late"));
  }
  return absl::OkStatus();
}

void ServerCoreImpl::HandleJoin(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<v1::JoinRequest> request =
      Parse<v1::JoinRequest>(bytes, "JoinRequest", 2 * options_.plan_text.size() + kMaxJoinBytes);
  if (!request.ok()) return reply(request.status());
  TrimTexts(&*request);
  Actions actions;
  absl::StatusOr<v1::JoinReply> answer = [&]() -> absl::StatusOr<v1::JoinReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckJoin(*request, now));
    const int id = request->caller().trainer();
    Trainer& trainer = trainers_[static_cast<size_t>(id)];
    v1::JoinReply joined;
    if (!failure_.ok()) {
      // With its own code, as heart-beats have it.
      if (trainer.state == Trainer::kAbsent || trainer.process == request->process()) trainer.told = true;
      joined.set_failure(std::string(failure_.message()));
      joined.set_failure_code(static_cast<int>(failure_.code()));
      return joined;
    }
    if (trainer.applying && trainer.state == Trainer::kDead) {
      // Which step comes next is known when this one has taken effect.
      return absl::UnavailableError(
          absl::StrCat(Self(), ": the last step of ", Name(id), ", who is dead, is taking effect"));
    }
    if (trainer.state == Trainer::kAbsent || trainer.state == Trainer::kDead) {
      const bool again = trainer.state == Trainer::kDead;
      // Whoever takes its place knows nothing of them.
      if (again) streams_.Close(id);
      // What has taken effect under this id, here or in the run that was resumed, has done so.
      const int64_t applied_step = trainer.applied_step;
      trainer = Trainer();
      trainer.applied_step = applied_step;
      trainer.state = Trainer::kJoined;
      if (gate_ != nullptr) gate_->Join(id);
      trainer.takes_over = again;
      trainer.process = request->process().substr(0, kMaxText);
      trainer.incarnation = request->incarnation();
      trainer.session = NewSession();
      trainer.credits = std::make_shared<ReplyCredits>(options_.unread_bytes);
      trainer.progress = trainer.last_warning = now;
      connecting_since_ = now;
      PassDuties();
      LOG(INFO) << Self() << ": " << Name(id) << (again ? " takes the place of a dead one" : " has joined");
    }
    trainer.lease_until = now + lease_;
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
    if (options_.server_id == 0) joined.set_chief(chief_);
    return joined;
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  reply(Serialize(*answer));
}

absl::Status ServerCoreImpl::CheckCaller(const v1::Caller& caller, absl::Time now) {
  if (caller.job_id() != options_.job_name) {
    return absl::FailedPreconditionError(absl::StrCat(
        Self(), " runs job ", options_.job_name, ", the caller belongs to job ", caller.job_id().substr(0, kMaxText)));
  }
  const int id = caller.trainer();
  if (id < 0 || id >= trainer_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", id, "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (trainer.state == Trainer::kAbsent) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", id, " has not joined ", Self()));
  }
  if (trainer.session != caller.session()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the lease of trainer ", id, " has passed to ", trainer.process, "; this caller ", kCannotGoOn));
  }
  if (trainer.state == Trainer::kDead) {
    return absl::FailedPreconditionError(absl::StrCat(Name(id), " was declared dead after ", SecondsText(lease_),
                                                      " without a sign of life; it ", kCannotGoOn));
  }
  trainer.lease_until = now + lease_;
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> ServerCoreImpl::ActFor(const v1::Caller& caller, Actions* actions) {
  const absl::Time now = options_.clock->Now();
  ExpireLeases(now, actions);
  RETURN_IF_ERROR(CheckCaller(caller, now));
  if (!failure_.ok()) return Aborted(caller.trainer());
  return now;
}

void ServerCoreImpl::HandleHeartbeat(const Slices& bytes, const ReplyCallback& reply) {
  absl::Status known = Admit(bytes, "HeartbeatRequest");
  absl::StatusOr<v1::HeartbeatRequest> request = v1::HeartbeatRequest();
  if (known.ok()) request = Parse<v1::HeartbeatRequest>(bytes, "HeartbeatRequest", kMaxHeaderBytes);
  if (!request.ok()) return reply(request.status());
  Actions actions;
  absl::StatusOr<v1::HeartbeatReply> answer = [&]() -> absl::StatusOr<v1::HeartbeatReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    if (known.ok()) known = CheckCaller(request->caller(), now);
    // In a failed job every caller hears why, the one declared dead too.
    if (!known.ok() && failure_.ok()) return known;
    v1::HeartbeatReply answer;
    if (known.ok() && request->leave()) {
      RETURN_IF_ERROR(Leave(request->caller().trainer()));
      AnswerExchanges(now, &actions);
    } else if (known.ok()) {
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
        saved_ = written_;
        PassDuties();
        AnswerExchanges(now, &actions);
        FailIfUnsaved("", &actions);
      }
      if (!failure_.ok()) trainer.told = true;
    }
    answer.set_version(version_.version);
    answer.set_stop_requested(stop_requested_);
    if (options_.server_id == 0) answer.set_chief(chief_);
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
