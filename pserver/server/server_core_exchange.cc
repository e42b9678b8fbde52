#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

template <typename Call>
size_t CountOf(const std::list<Call>& calls, int trainer) {
  return static_cast<size_t>(
      std::count_if(calls.begin(), calls.end(), [&](const Call& call) { return call.trainer == trainer; }));
}

}  // namespace

size_t ServerCoreImpl::ExchangeRoom(int trainer) const {
  const v1::Plan& plan = options_.main.plan();
  // Residuals of a node: of all dense elements, and of rows of each table, whose ids take a byte or two more than in
  // memory.
  size_t residuals = 0;
  if (plan.wire().push() != v1::WIRE_FLOAT32) {
    for (const v1::PlacedBlock& block : plan.blocks()) {
      residuals +=
          block.sparse_gradient() ? kResidualBytes / 8 * 9 : static_cast<size_t>(block.element_count()) * sizeof(float);
    }
  }
  for (const v1::PlacedTable& table : plan.tables())
    residuals += table.wire().push() != v1::WIRE_FLOAT32 ? kResidualBytes / 8 * 9 : 0;
  // The posted ones, and those that take their place.
  return options_.exchange_bytes + 2 * nodes_[static_cast<size_t>(trainer)].size() * residuals;
}

namespace {

// The answer's bytes, which give `credit` back when they go; null: none.
Slices SerializeWith(const v1::ExchangeReply& reply, const std::shared_ptr<const void>& credit) {
  Slices bytes = Serialize(reply);
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  if (credit != nullptr) bytes[0].owner = std::make_shared<const Both>(bytes[0].owner, credit);
  return bytes;
}

}  // namespace

absl::Status ServerCoreImpl::HandleStream(const v1::ExchangeRequest& request, WaitingExchange* call) {
  if (request.chunk() < 0)
    return absl::InvalidArgumentError(absl::StrCat("stream ", request.key(), ": chunk ", request.chunk()));
  call->request.set_key(request.key());
  call->request.set_chunk(request.chunk());
  if (request.has_stream_from()) {
    call->request.set_stream_from(request.stream_from());
    return streams_.Take(request, call->trainer);
  }
  call->request.set_stream_to(request.stream_to());
  if (!request.has_contribution()) return absl::OkStatus();
  // A writer that lives need not know that the reader does not.
  if (request.stream_to() >= 0 && request.stream_to() < trainer_count_ && Excused(request.stream_to()))
    return absl::OkStatus();
  RETURN_IF_ERROR(streams_.Write(request, call->trainer));
  // Answered at once: the chunk that it asks for room for is there.
  call->request.set_chunk(0);
  return absl::OkStatus();
}

bool ServerCoreImpl::TryAnswerStream(const WaitingExchange& call, bool final, Actions* actions) {
  Trainer& trainer = trainers_[static_cast<size_t>(call.trainer)];
  v1::ExchangeReply reply;
  std::shared_ptr<const void> credit;
  bool ready = false;
  if (call.request.has_stream_to()) {
    const int to = call.request.stream_to();
    ready = to < 0 || to >= trainer_count_ || Excused(to) || streams_.HasRoom(call.request, call.trainer);
  } else {
    // What it has asked for before has to leave first.
    if (trainer.credits != nullptr) credit = trainer.credits->Take(streams_.ReadBytes(call.request, call.trainer));
    const bool gone = Excused(call.request.stream_from());
    ready =
        (trainer.credits == nullptr || credit != nullptr) && streams_.Read(call.request, call.trainer, gone, &reply);
  }
  if (!ready && !final) return false;
  if (ready) trainer.progress = options_.clock->Now();
  reply.set_ready(ready);
  actions->push_back([callback = call.reply, reply = std::move(reply), credit = std::move(credit)] {
    callback(SerializeWith(reply, credit));
  });
  return true;
}

bool ServerCoreImpl::TryAnswerAnyone(const WaitingExchange& call, bool final, Actions* actions) {
  const ExchangeBoard::NewestPost newest = board_.Newest(call.request.key());
  v1::ExchangeReply reply;
  reply.set_ready(newest.edition >= call.request.edition() || chief_ == call.trainer);
  if (!reply.ready() && !final) return false;
  if (newest.trainer >= 0) reply.set_by(newest.trainer);
  if (newest.trainer >= 0) reply.set_edition(newest.edition);
  reply.set_chief(chief_);
  if (!reply.ready()) reply.add_missing(chief_);
  trainers_[static_cast<size_t>(call.trainer)].progress = options_.clock->Now();
  actions->push_back([callback = call.reply, reply = std::move(reply)] { callback(Serialize(reply)); });
  return true;
}

bool ServerCoreImpl::TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) {
  if (call.request.has_stream_to() || call.request.has_stream_from()) return TryAnswerStream(call, final, actions);
  if (call.request.anyone()) return TryAnswerAnyone(call, final, actions);
  const bool post = call.request.has_edition();
  std::vector<int> missing;
  if (!post) {
    missing = board_.Missing(call.request.key(), [this](int t) {
      mu_.AssertHeld();
      return Excused(t);
    });
  }
  Trainer& trainer = trainers_[static_cast<size_t>(call.trainer)];
  const bool reads = missing.empty() && (post || call.request.read_trainer() >= 0);
  std::shared_ptr<const void> credit;
  if (reads && trainer.credits != nullptr) credit = trainer.credits->Take(board_.ReadBytes(call.request));
  // What it has asked for before has to leave first.
  const bool ready = missing.empty() && (!reads || trainer.credits == nullptr || credit != nullptr);
  if (!ready && !final) return false;
  v1::ExchangeReply reply;
  reply.set_ready(ready);
  reply.set_chief(chief_);
  for (int t : missing) reply.add_missing(t);
  absl::Status status;
  if (ready) {
    trainer.progress = options_.clock->Now();
    if (reads) status = post ? board_.ReadPost(call.request, &reply) : board_.Read(call.request, call.trainer, &reply);
  }
  actions->push_back([callback = call.reply, status, reply = std::move(reply), credit = std::move(credit)] {
    if (!status.ok()) return callback(status);
    callback(SerializeWith(reply, credit));
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
  absl::StatusOr<v1::ExchangeRequest> request = AdmitAndParse<v1::ExchangeRequest>(bytes, "ExchangeRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request->caller(), &actions));
    const int id = request->caller().trainer();
    if (options_.server_id != 0) {
      return absl::InvalidArgumentError(absl::StrCat("Exchange goes to server 0; this is ", Self()));
    }
    RETURN_IF_ERROR(ExchangeBoard::CheckKey(request->key()));
    WaitingExchange call{id, {}, now + std::min(kMaxWait, OfSeconds(request->wait_s())), reply};
    if (request->has_stream_to() || request->has_stream_from()) {
      RETURN_IF_ERROR(HandleStream(*request, &call));
      if (!TryAnswerExchange(call, now >= call.deadline, &actions)) {
        RETURN_IF_ERROR(CheckWaiting(id, "exchanges", CountOf(exchanges_, id)));
        exchanges_.push_back(std::move(call));
      }
      // Chunks that came or went may be what another waits for.
      AnswerExchanges(now, &actions);
      return absl::OkStatus();
    }
    if (request->has_edition()) {
      if (request->edition() < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("Exchange: edition ", request->edition(), " of ", request->key()));
      }
      if (request->anyone() && request->has_contribution()) {
        return absl::InvalidArgumentError(
            absl::StrCat("Exchange: anyone's post of ", request->key(), " with a contribution"));
      }
      if (request->has_contribution()) {
        RETURN_IF_ERROR(board_.Post(*request, id));
        v1::ExchangeReply posted;
        posted.set_ready(true);
        posted.set_chief(chief_);
        // Somebody may wait for anyone's post.
        AnswerExchanges(now, &actions);
        actions.push_back([reply, posted = std::move(posted)] { reply(Serialize(posted)); });
        return absl::OkStatus();
      }
    } else if (request->has_contribution()) {
      RETURN_IF_ERROR(board_.Put(*request, id));
      AnswerExchanges(now, &actions);
    }
    // Whoever asks for the others is not waited for; its own deadline ends that.
    trainers_[static_cast<size_t>(id)].progress = now;
    // Only what its answer needs.
    call.request.set_key(request->key());
    call.request.set_read_trainer(request->read_trainer());
    call.request.set_chunk(request->chunk());
    if (request->has_edition()) call.request.set_edition(request->edition());
    if (request->anyone()) call.request.set_anyone(true);
    if (TryAnswerExchange(call, now >= call.deadline, &actions)) return absl::OkStatus();
    RETURN_IF_ERROR(CheckWaiting(id, "exchanges", CountOf(exchanges_, id)));
    exchanges_.push_back(std::move(call));
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
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), ": in sync trainer 0 brings the norms; this is ", Name(id)));
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
  const absl::StatusOr<v1::NormsRequest> request =
      AdmitAndParse<v1::NormsRequest>(bytes, "NormsRequest", kMaxHeaderBytes);
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request->caller(), &actions));
    const int id = request->caller().trainer();
    HandledCall::Describe(handled, id, request->step(), kNorms);
    RETURN_IF_ERROR(BookNorms(*request));
    WaitingNorms call{id, request->step(), request->round(), now + std::min(kMaxWait, OfSeconds(request->wait_s())),
                      reply};
    if (TryAnswerNorms(call, now >= call.deadline, &actions)) return absl::OkStatus();
    RETURN_IF_ERROR(CheckWaiting(id, "calls for norms", CountOf(norm_calls_, id)));
    norm_calls_.push_back(std::move(call));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
  Advance();
}

}  // namespace weir
