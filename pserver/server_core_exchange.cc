#include "pserver/server_core_impl.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

bool ServerCoreImpl::TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) {
  const std::vector<int> missing = board_.Missing(call.request.key(), [this](int t) {
    mu_.AssertHeld();
    return Excused(t);
  });
  if (!missing.empty() && !final) return false;
  v1::ExchangeReply reply;
  reply.set_ready(missing.empty());
  for (int t : missing) reply.add_missing(t);
  absl::Status status;
  if (missing.empty()) {
    trainers_[static_cast<size_t>(call.trainer)].progress = options_.clock->Now();
    if (call.request.read_trainer() >= 0) status = board_.Read(call.request, call.trainer, &reply);
  }
  actions->push_back([callback = call.reply, status, reply = std::move(reply)] {
    if (status.ok()) {
      callback(Serialize(reply));
    } else {
      callback(status);
    }
  });
  return true;
}

void ServerCoreImpl::AnswerExchanges(absl::Time now, Actions* actions) {
  for (auto call = exchanges_.begin(); call != exchanges_.end();) {
    const bool answered = TryAnswerExchange(*call, now >= call->deadline, actions);
    call = answered ? exchanges_.erase(call) : std::next(call);
  }
}

void ServerCoreImpl::HandleExchange(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<v1::ExchangeRequest> request = Parse<v1::ExchangeRequest>(bytes, "ExchangeRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request->caller(), now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    if (options_.server_id != 0) {
      return absl::InvalidArgumentError(absl::StrCat("Exchange goes to server 0; this is ", Self()));
    }
    if (request->key().empty()) return absl::InvalidArgumentError("Exchange: the key is empty");
    if (request->has_edition()) {
      v1::ExchangeReply posted;
      posted.set_ready(true);
      if (request->edition() < 0) {
        return absl::InvalidArgumentError(absl::StrCat("Exchange: edition ", request->edition(), " of ", request->key()));
      }
      RETURN_IF_ERROR(request->has_contribution() ? board_.Post(*request, id) : board_.ReadPost(*request, &posted));
      actions.push_back([reply, posted = std::move(posted)] { reply(Serialize(posted)); });
      return absl::OkStatus();
    }
    if (request->has_contribution()) {
      RETURN_IF_ERROR(board_.Put(*request, id));
      request->clear_contribution();
      AnswerExchanges(now, &actions);
    }
    // Whoever asks for the others is not waited for; its own deadline ends that.
    trainers_[static_cast<size_t>(id)].progress = now;
    WaitingExchange call{id, *std::move(request), now, reply};
    call.deadline = now + std::min(kMaxWait, OfSeconds(call.request.wait_s()));
    if (!TryAnswerExchange(call, now >= call.deadline, &actions)) exchanges_.push_back(std::move(call));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
}

// -------------------------------------------------------------------------------------------------------------- norms

namespace {

const ProfileName kNorms("Norms");

}  // namespace

absl::Status ServerCoreImpl::BookNorms(const v1::NormsRequest& request) {
  const int id = request.caller().trainer();
  if (!exchanges_norms_) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), ": its steps need no norms from others"));
  }
  if (sync_ && id != 0) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), ": in sync trainer 0 brings the norms; this is ", Name(id)));
  }
  const std::string what = absl::StrCat(Name(id), ", norms of step ", request.step(), ", round ", request.round());
  if (request.round() < 0 || request.round() > params_->norm_rounds()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": rounds run from 0 to ", params_->norm_rounds()));
  }
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (request.step() <= (sync_ ? version_.version - 1 : trainer.applied_step)) return absl::OkStatus();
  if (request.step() != trainer.pending.step || !trainer.pending.Complete()) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": the pushes of that step are not complete"));
  }
  if (request.round() == 0) return absl::OkStatus();
  const bool waiting = trainer.pending.norms.Waiting();
  const absl::Status booked = trainer.pending.norms.Book(request.round() - 1, request.norms());
  if (!booked.ok()) return absl::Status(booked.code(), absl::StrCat(what, ": ", booked.message()));
  if (waiting && !trainer.pending.norms.Waiting()) trainer.progress = options_.clock->Now();
  return absl::OkStatus();
}

bool ServerCoreImpl::TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) {
  const Trainer& trainer = trainers_[static_cast<size_t>(call.trainer)];
  const NormRounds& norms = NormStep(call.trainer).norms;
  v1::NormsReply reply;
  reply.set_ready(true);
  if (call.step <= (sync_ ? version_.version - 1 : trainer.applied_step)) {
    reply.set_over(true);
  } else if (sync_ && call.round == params_->norm_rounds()) {
    // Everything is here; who waits for the new version pulls it.
  } else if (norms.Waiting() && norms.round() == call.round) {
    norms.Fill(&reply);
  } else if (final) {
    reply.set_ready(false);
    reply.set_waiting_for(WaitingFor(v1::PullRequest()));
  } else {
    return false;
  }
  actions->push_back([callback = call.reply, reply = std::move(reply)] { callback(Serialize(reply)); });
  return true;
}

void ServerCoreImpl::AnswerNorms(absl::Time now, Actions* actions) {
  for (auto call = norm_calls_.begin(); call != norm_calls_.end();) {
    const bool answered = TryAnswerNorms(*call, now >= call->deadline, actions);
    call = answered ? norm_calls_.erase(call) : std::next(call);
  }
}

void ServerCoreImpl::HandleNorms(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  const absl::StatusOr<v1::NormsRequest> request = Parse<v1::NormsRequest>(bytes, "NormsRequest", kMaxHeaderBytes);
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request->caller(), now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    HandledCall::Describe(handled, id, request->step(), kNorms);
    RETURN_IF_ERROR(BookNorms(*request));
    WaitingNorms call{id, request->step(), request->round(), now + std::min(kMaxWait, OfSeconds(request->wait_s())), reply};
    if (!TryAnswerNorms(call, now >= call.deadline, &actions)) norm_calls_.push_back(std::move(call));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
  Advance();
}

}  // namespace weir
