#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/membership/limits.h"
#include "google/protobuf/message_lite.h"
#include "pserver/server/server_core_impl.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

namespace {

// Most bytes of a caller, most of which may be the job's name, and of a join besides its plan text.
constexpr size_t kMaxCallerBytes = size_t{16} << 10, kMaxJoinBytes = size_t{1} << 20;

// Calls that a reader may make, for messages.
constexpr char kReadersCalls[] = "pulls, and asks for news by heart-beats";

// Makes what messages and the log repeat of a join safe to show; the job's name is compared before.
void MakePrintable(v1::JoinRequest* request) {
  for (std::string* text : {request->mutable_process(), request->mutable_build(), request->mutable_arithmetic()}) {
    *text = Printable(*text, kMaxText);
  }
}

// Returns the answer to one that comes when the job has failed: with the failure's own code, as heart-beats have it.
v1::JoinReply TooLate(const absl::Status& failure) {
  v1::JoinReply joined;
  *joined.mutable_failure() = StatusMessage(failure);
  return joined;
}

// Returns the answer's bytes, which give `credit` back when they go; null: none.
Slices SerializeWith(const google::protobuf::MessageLite& reply, std::shared_ptr<const void> credit) {
  Slices bytes = Serialize(reply);
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  if (credit != nullptr) bytes[0].owner = std::make_shared<const Both>(bytes[0].owner, std::move(credit));
  return bytes;
}

// Returns the caller of a request, of which nothing else is copied. InvalidArgument: the bytes are no message.
absl::StatusOr<v1::Caller> CallerIn(const Slices& message, std::string_view what) {
  static_assert(v1::HeartbeatRequest::kCallerFieldNumber == 1 && v1::PushRequest::kCallerFieldNumber == 1 &&
                v1::PullRequest::kCallerFieldNumber == 1 && v1::ExchangeRequest::kCallerFieldNumber == 1 &&
                v1::ControlRequest::kCallerFieldNumber == 1 && v1::NormsRequest::kCallerFieldNumber == 1);
  const absl::StatusOr<std::string> bytes = ReadField(message, 1, kMaxCallerBytes);
  v1::Caller caller;
  if (bytes.ok() && caller.ParseFromString(*bytes)) return caller;
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ", TotalSize(message),
                                                 " bytes that are no such message",
                                                 bytes.ok() ? "" : absl::StrCat(": ", bytes.status().message())));
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- callers

absl::Status ServerCoreImpl::Admit(const Slices& message, std::string_view what, Callers callers) {
  ASSIGN_OR_RETURN(const v1::Caller caller, CallerIn(message, what));
  Actions actions;
  absl::Status known;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    known = roster_->CheckCaller(caller, now);
  }
  RunAll(&actions);
  if (!known.ok() || callers == Callers::kReadersToo || caller.trainer() != kReader) return known;
  return absl::FailedPreconditionError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ", self_,
                                                    " takes it from trainers; the caller is a reader, which only ",
                                                    kReadersCalls));
}

absl::StatusOr<absl::Time> ServerCoreImpl::ActFor(const v1::Caller& caller, Actions* actions) {
  const absl::Time now = options_.clock->Now();
  ExpireLeases(now, actions);
  RETURN_IF_ERROR(roster_->CheckCaller(caller, now));
  if (!roster_->failure().ok()) return roster_->Aborted(caller.trainer());
  return now;
}

// --------------------------------------------------------------------------------------------------------------- joins

absl::StatusOr<v1::JoinReply> ServerCoreImpl::JoinReader(const v1::JoinRequest& request,
                                                         std::shared_ptr<const void>* credit) {
  if (const absl::Status& failure = roster_->failure(); !failure.ok()) return TooLate(failure);
  const absl::StatusOr<uint64_t> session =
      roster_->readers().Admit(request.process(), request.incarnation(), options_.clock->Now());
  if (!session.ok()) return absl::Status(session.status().code(), absl::StrCat(self_, " ", session.status().message()));
  v1::JoinReply joined;
  joined.set_server_index(options_.server_id);
  joined.set_process(options_.process);
  joined.set_session(*session);
  joined.set_version(mode_->version().version);
  *credit = roster_->readers().TakeCredit(*session, joins_.plan().size());
  if (*credit == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(self_, ": ", roster_->readers().Name(*session),
                     " itself, or other readers, have answers to read before this one"));
  }
  if (options_.server_id == 0) joined.set_chief(roster_->chief());
  return joined;
}

absl::StatusOr<v1::JoinReply> ServerCoreImpl::Join(const v1::JoinRequest& request, std::shared_ptr<const void>* credit,
                                                   Actions* actions) {
  const absl::Time now = options_.clock->Now();
  ExpireLeases(now, actions);
  if (request.reader()) return JoinReader(request, credit);
  const int id = request.caller().trainer();
  RETURN_IF_ERROR(roster_->CheckClaim(id, request.process(), request.incarnation(), now));
  const RosterPlace& place = roster_->place(id);
  if (const absl::Status& failure = roster_->failure(); !failure.ok()) {
    if (place.state == RosterPlace::kAbsent || place.process == request.process()) roster_->Told(id);
    return TooLate(failure);
  }
  if (mode_->Applies(id) && place.state == RosterPlace::kDead) {
    // The next step of this trainer is known only when its last one has taken effect.
    return absl::UnavailableError(
        absl::StrCat(self_, ": the last step of ", roster_->Name(id), ", who is dead, is taking effect"));
  }
  if (place.state == RosterPlace::kAbsent || place.state == RosterPlace::kDead) {
    // A process that takes the place of a dead one knows nothing of its streams.
    members_changed_ = true;
    if (roster_->Join(id, request.process(), request.incarnation(), now)) exchanges_->Close(id);
    mode_->OnJoin(id);
  }
  roster_->Renew(id, now);
  v1::JoinReply joined;
  joined.set_server_index(options_.server_id);
  joined.set_process(options_.process);
  joined.set_session(place.session);
  for (int t = 0; t < roster_->size(); ++t) {
    if (roster_->place(t).state != RosterPlace::kAbsent) joined.add_joined(t);
  }
  joined.set_checkpoint_probe(actions_->probe().name);
  joined.set_checkpoint_token(actions_->probe().token);
  joined.set_version(mode_->version().version);
  if (mode_->exchanges_norms()) joined.set_norm_rounds(params_->norm_rounds());
  if (place.replaced != nullptr) joined.set_next_step(mode_->StepsOf(id));
  if (options_.server_id == 0) joined.set_chief(roster_->chief());
  return joined;
}

void ServerCoreImpl::HandleJoin(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<v1::JoinRequest> request =
      Parse<v1::JoinRequest>(bytes, "JoinRequest", 2 * options_.plan_text.size() + kMaxJoinBytes);
  if (!request.ok()) return reply(request.status());
  MakePrintable(&*request);
  if (absl::Status fits = joins_.Check(*request); !fits.ok()) return reply(fits);
  Actions actions;
  std::shared_ptr<const void> credit;
  absl::StatusOr<v1::JoinReply> answer = [&] {
    MutexLock lock(&mu_);
    return Join(*request, &credit, &actions);
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  // The plan may be large, and nobody waits for a reader.
  if (request->reader() && answer->has_session()) answer->set_plan(joins_.plan());
  reply(SerializeWith(*answer, std::move(credit)));
}

// --------------------------------------------------------------------------------------------------------- heart-beats

absl::Status ServerCoreImpl::HearReader(const v1::HeartbeatRequest& request, Actions* actions) {
  if (request.done() || request.stop_requested() || request.has_failure()) {
    return absl::FailedPreconditionError(
        absl::StrCat("HeartbeatRequest: ", self_, " hears of ends, stops and failures from trainers; the caller is a ",
                     "reader, which only ", kReadersCalls));
  }
  if (!request.leave()) return absl::OkStatus();
  const uint64_t session = request.caller().session();
  roster_->readers().Release(session);
  pulls_->AnswerLeaving(session, actions);
  return absl::OkStatus();
}

absl::Status ServerCoreImpl::Hear(const v1::HeartbeatRequest& request, absl::Time now, Actions* actions) {
  if (request.caller().trainer() == kReader) return HearReader(request, actions);
  const int id = request.caller().trainer();
  if (request.leave()) {
    RETURN_IF_ERROR(roster_->Release(id, now));
    members_changed_ = true;
    if (roster_->place(id).state == RosterPlace::kDead) mode_->OnDeath(id);
    exchanges_->Answer(now, actions);
    return absl::OkStatus();
  }
  roster_->Heard(id, request, now);
  if (request.stop_requested()) roster_->RequestStop();
  if (const absl::Status failure = StatusOf(request.failure(), kMaxText); !failure.ok()) Fail(failure, actions);
  if (request.done() && roster_->Done(id)) {
    members_changed_ = true;
    mode_->OnDone(id);
    saves_.Saved();
    exchanges_->Answer(now, actions);
    FailIfUnsaved("", actions);
  }
  if (!roster_->failure().ok()) roster_->Told(id);
  return absl::OkStatus();
}

v1::HeartbeatReply ServerCoreImpl::News() const {
  v1::HeartbeatReply news;
  news.set_version(mode_->version().version);
  news.set_stop_requested(roster_->stop_requested());
  if (roster_->AwaitsFiles()) news.set_awaits_files(true);
  if (options_.server_id == 0) news.set_chief(roster_->chief());
  if (!roster_->failure().ok()) *news.mutable_failure() = StatusMessage(roster_->failure());
  for (int t = 0; t < roster_->size(); ++t) {
    const RosterPlace& place = roster_->place(t);
    if (place.state == RosterPlace::kDead) news.add_dead(t);
    if (place.state == RosterPlace::kDone) news.add_done(t);
    if (place.slow) news.add_slow(absl::StrCat(roster_->Name(t), " at step ", place.step));
  }
  return news;
}

ServerReport ServerCoreImpl::Report() {
  ServerReport report;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    report.version = mode_->version().version;
    report.stopped = roster_->stopped();
    constexpr const char* kStates[] = {"absent", "joined", "done", "dead"};
    for (int t = 0; t < roster_->size(); ++t) {
      const RosterPlace& place = roster_->place(t);
      report.trainers.push_back({.name = roster_->Name(t),
                                 .state = kStates[place.state],
                                 .step = place.step,
                                 .idle = now - place.progress,
                                 .waits = place.waiting_for});
    }
    for (const auto& [trainer, who] : pulls_->WaitsByTrainer()) {
      report.waits.push_back({.trainer = trainer,
                              .what = absl::StrCat("step ", report.version, ", for trainer ", absl::StrJoin(who, ", ")),
                              .since = now - roster_->place(trainer).progress});
    }
  }
  for (int i = 0; i < params_->tables(); ++i) {
    const SparseTable& table = params_->table(i);
    report.tables.push_back(
        {.name = table.name(), .width = table.width(), .rows = table.size(), .bytes = table.bytes()});
  }
  return report;
}

void ServerCoreImpl::HandleHeartbeat(const Slices& bytes, const ReplyCallback& reply) {
  absl::Status known = Admit(bytes, "HeartbeatRequest", Callers::kReadersToo);
  absl::StatusOr<v1::HeartbeatRequest> request = v1::HeartbeatRequest();
  if (known.ok()) request = Parse<v1::HeartbeatRequest>(bytes, "HeartbeatRequest", kMaxHeaderBytes);
  if (!request.ok()) return reply(request.status());
  const absl::StatusOr<v1::Caller> caller = CallerIn(bytes, "HeartbeatRequest");
  const bool of_job = caller.ok() && caller->job_id() == options_.job_name;
  Actions actions;
  const absl::StatusOr<v1::HeartbeatReply> answer = [&]() -> absl::StatusOr<v1::HeartbeatReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    if (known.ok()) known = roster_->CheckCaller(request->caller(), now);
    // In a failed job every caller of the job hears why, the one declared dead too.
    if (!known.ok() && (roster_->failure().ok() || !of_job)) return known;
    if (known.ok()) RETURN_IF_ERROR(Hear(*request, now, &actions));
    return News();
  }();
  RunAll(&actions);
  Answer(reply, answer);
}

// ----------------------------------------------------------------------------------------------------------- exchanges

void ServerCoreImpl::HandleExchange(const Slices& bytes, const ReplyCallback& reply) {
  AsCaller<v1::ExchangeRequest>(
      bytes, "ExchangeRequest", kMaxMessageBytes, reply,
      [&](const v1::ExchangeRequest& request, absl::Time now, Actions* actions) -> absl::Status {
        mu_.AssertHeld();
        if (options_.server_id != 0) {
          return absl::InvalidArgumentError(absl::StrCat("Exchange goes to server 0; this is ", self_));
        }
        const auto answer = [reply](absl::StatusOr<v1::ExchangeReply> result, std::shared_ptr<const void> credit) {
          if (!result.ok()) return reply(result.status());
          reply(SerializeWith(*result, std::move(credit)));
        };
        return exchanges_->Handle(request, now, answer, actions);
      });
}

// ------------------------------------------------------------------------------------------------- deaths and failures

void ServerCoreImpl::Fail(const absl::Status& status, Actions* actions) {
  roster_->Fail(status, options_.clock->Now());
  AbortCalls(actions);
}

void ServerCoreImpl::AbortCalls(Actions* actions) {
  const auto abort = [&](int trainer, const ReplyCallback& reply) {
    mu_.AssertHeld();
    actions->push_back([reply, status = roster_->Aborted(trainer)] { reply(status); });
  };
  for (const WaitingPull& pull : pulls_->TakeAll()) abort(pull.trainer, pull.reply);
  exchanges_->Abort(actions);
  for (const auto& [trainer, reply] : steps_->TakeWaiting()) abort(trainer, reply);
  for (const auto& call : controls_.TakeWaiting()) {
    for (const ReplyCallback& reply : call->replies) abort(call->trainer, reply);
  }
  for (int t = 0; t < roster_->size(); ++t) {
    for (const ReplyCallback& reply : mode_->TakeWaiters(t)) abort(t, reply);
  }
}

void ServerCoreImpl::AnswerDead(int trainer, const std::string& text, Actions* actions) {
  const auto answer = [&](const ReplyCallback& reply) {
    actions->push_back([reply, text] { reply(absl::FailedPreconditionError(text)); });
  };
  for (const ReplyCallback& reply : mode_->TakeWaiters(trainer)) answer(reply);
  for (const auto& [caller, reply] : steps_->TakeWaiting(trainer)) answer(reply);
  for (const auto& call : controls_.TakeWaiting(trainer)) {
    for (const ReplyCallback& reply : call->replies) answer(reply);
  }
}

void ServerCoreImpl::ExpireLeases(absl::Time now, Actions* actions) {
  roster_->BeginLook(now);
  while (const std::optional<Roster::Departure> departure = roster_->TakeExpired(now)) {
    const int trainer = departure->trainer;
    const std::string& text = departure->text;
    members_changed_ = true;
    const bool merged = mode_->book().of(trainer).IsMerged();
    mode_->OnDeath(trainer);
    if (departure->freed && merged) {
      // Trainers whose parts have been acknowledged would wait for ever for the step that is forgotten.
      Fail(absl::UnavailableError(absl::StrCat(
               text, "; its gradients came added to those of other trainers, so no other process can take its place")),
           actions);
    }
    if (departure->freed) continue;
    if (departure->ends_job) {
      Fail(absl::UnavailableError(text), actions);
      continue;
    }
    AnswerDead(trainer, text, actions);
    exchanges_->Answer(now, actions);
    if (roster_->All(RosterPlace::kDead)) {
      Fail(absl::UnavailableError(absl::StrCat("every trainer is dead; the last: ", text, Unsaved())), actions);
    }
    FailIfUnsaved(text, actions);
  }
}

std::string ServerCoreImpl::Unsaved() const { return options_.checkpoint_dir.empty() ? "" : saves_.Unsaved(); }

void ServerCoreImpl::FailIfUnsaved(const std::string& last_death, Actions* actions) {
  const std::string unsaved = Unsaved();
  if (!roster_->failure().ok() || unsaved.empty()) return;
  std::vector<std::string> dead;
  for (int t = 0; t < roster_->size(); ++t) {
    if (!roster_->Excused(t)) return;
    if (roster_->place(t).state == RosterPlace::kDead) dead.push_back(roster_->Name(t));
  }
  if (dead.empty()) return;
  Fail(absl::UnavailableError(
           absl::StrCat(last_death.empty() ? absl::StrCat(absl::StrJoin(dead, ", "), " died") : last_death,
                        ", the others are done and no trainer is left to save", unsaved)),
       actions);
}

void ServerCoreImpl::WatchProgress(absl::Time now, Actions* actions) {
  // While a checkpoint is written or read everyone waits for this server.
  if (!controls_.idle()) return;
  const absl::Status status = roster_->WatchProgress(now, [this](int trainer) {
    mu_.AssertHeld();
    return mode_->WaitsForOthers(trainer, pulls_->StepsOf(trainer));
  });
  if (!status.ok()) Fail(status, actions);
}

}  // namespace weir
