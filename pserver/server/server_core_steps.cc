#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

namespace {

const ProfileName kPush("Push"), kNorms("Norms"), kUpdateWait("its update");

}  // namespace

// -------------------------------------------------------------------------------------------------------------- pushes

absl::Status ServerCoreImpl::CheckTurn(const v1::PushRequest& request, const std::string& part_name, Actions* actions) {
  const int id = request.caller().trainer();
  if (roster_->place(id).state == RosterPlace::kDone) {
    return absl::FailedPreconditionError(absl::StrCat(part_name, ": it has said that it is done"));
  }
  RETURN_IF_ERROR(mode_->CheckTurn(id, request.step(), part_name));
  if (!mode_->NeedsAllTrainers()) return absl::OkStatus();
  for (int t = 0; t < roster_->size(); ++t) {
    if (roster_->place(t).state != RosterPlace::kDone) continue;
    absl::Status status = absl::FailedPreconditionError(absl::StrCat(
        roster_->Name(t), " has ended before step ", request.step(), ", which ", roster_->Name(id), " pushes"));
    Fail(status, actions);
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerCoreImpl::BookedPart> ServerCoreImpl::BookPart(const v1::PushRequest& request,
                                                                    std::vector<Gradient> gradients, size_t message,
                                                                    Actions* actions) {
  ASSIGN_OR_RETURN(const absl::Time now, ActFor(request.caller(), actions));
  const int id = request.caller().trainer();
  const std::string part_name = absl::StrCat(roster_->Name(id), ", step ", request.step(), ", part ", request.part());
  BookedPart booked;
  booked.reply.set_version(mode_->version().version);
  RETURN_IF_ERROR(StepBook::CheckRange(request, part_name));
  if (mode_->IsOver(id, request.step())) {
    book_->RepeatOver();
    booked.reply.set_duplicate(true);
    return booked;
  }
  RETURN_IF_ERROR(CheckTurn(request, part_name, actions));
  RETURN_IF_ERROR(book_->CheckPart(id, request, part_name));
  if (book_->Has(id, request.part())) {
    book_->Repeat(id, gradients);
    booked.reply.set_duplicate(true);
    // The answer to a repeat of a step in the middle of taking effect means what the first answer will.
    booked.wait = mode_->AnswersAfterUpdate(id);
    return booked;
  }
  // Control actions wait for updates, so none begins before a waiting one.
  const bool applies_now = mode_->AppliesOnArrival(request) && controls_.idle() && !gradients.empty();
  const size_t bytes = applies_now ? 0 : PendingBytes(message, gradients);
  RETURN_IF_ERROR(book_->CheckBooking(id, request, bytes, part_name));
  if (request.has_part_count()) RETURN_IF_ERROR(mode_->CheckVerdict(request.verdict(), part_name));
  book_->NumberArrivals(&gradients);
  if (request.stop_requested()) roster_->RequestStop();
  saves_.Pushed();
  roster_->Booked(id, request.step(), now);
  if (applies_now) {
    booked.apply = mode_->ApplyOnArrival(request, std::exchange(gradients, {}));
    booked.apply->table_step = runner_->table_steps();
  }
  book_->Book(id, request, std::move(gradients), bytes);
  booked.wait = mode_->AnswersAfterUpdate(id);
  return booked;
}

void ServerCoreImpl::HandlePush(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  v1::PushRequest request;
  Slices payload;
  if (absl::Status opened = OpenRequest(bytes, "Push", Callers::kTrainers, &request, &payload); !opened.ok())
    return reply(opened);
  const int id = request.caller().trainer();
  HandledCall::Describe(handled, id, request.step(), kPush);
  std::vector<Gradient> gradients;
  if (absl::Status read = pushes_->Read(request, payload, &gradients); !read.ok()) return reply(read);

  Actions actions;
  absl::StatusOr<BookedPart> booked;
  {
    MutexLock lock(&mu_);
    booked = BookPart(request, std::move(gradients), TotalSize(bytes), &actions);
    if (booked.ok() && booked->wait) {
      HandledCall::BeginWait(handled, kUpdateWait, "the update");
      mode_->AwaitUpdate(id, reply, &actions);
    }
  }
  RunAll(&actions);
  absl::Status status = booked.status();
  if (booked.ok() && booked->apply.has_value()) status = RunUpdate(*std::move(booked->apply));
  if (!status.ok()) {
    reply(status);
  } else if (!booked->wait) {
    reply(EncodeFrame(booked->reply.SerializeAsString(), {}));
  }
  Advance();
}

// ------------------------------------------------------------------------------------------------------------- updates

void ServerCoreImpl::Advance() {
  while (true) {
    std::shared_ptr<ControlCall> control;
    std::optional<Update> update;
    {
      MutexLock lock(&mu_);
      if (!roster_->failure().ok() || controls_.running()) return;
      if (controls_.waiting()) {
        // The thread that ends the last of them calls Advance again.
        if (mode_->running() > 0 || (reads_ > 0 && controls_.sets_values())) return;
        control = controls_.Start();
      } else {
        update = mode_->Next();
        if (!update.has_value()) return;
      }
    }
    if (control != nullptr) {
      RunControl(control->request);
    } else {
      (void)RunUpdate(*std::move(update));  // an error has failed the job
    }
  }
}

absl::Status ServerCoreImpl::RunUpdate(Update update) {
  const absl::StatusOr<bool> complete = runner_->Run(&update);
  Actions actions;
  Consistency::Effect effect;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  absl::Status failed;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    const int actor = std::max(0, update.trainer);
    if (complete.ok() && !*complete) {
      mode_->Hold(std::move(update), roster_->place(actor).state == RosterPlace::kDead);
      // From now on everyone waits for it.
      roster_->Progressed(actor, now);
    } else {
      if (!complete.ok()) {
        // A step that took effect in part cannot be taken back, and its trainer may not live to say so.
        failed = absl::Status(complete.status().code(),
                              absl::StrCat(self_, ": ", update.Name(), ": ", complete.status().message()));
        Fail(failed, &actions);
      }
      const bool stop = roster_->stop_requested() && options_.server_id == 0;
      effect = mode_->Finish(update, complete.ok(), stop, roster_->place(actor).state == RosterPlace::kJoined);
      if (effect.transaction) saves_.TookEffect();
      // A step of all trainers is over: all of them have done what others waited for.
      if (complete.ok() && update.kind == Update::Kind::kStep) roster_->AllProgressed(now, /*caught_up=*/true);
    }
    info = mode_->version();
    ready = TakeReadyPulls(now);
    AnswerNorms(now, &actions);
  }
  RunAll(&actions);
  for (const ReplyCallback& waiter : effect.waiters) {
    if (!failed.ok()) {
      waiter(failed);
      continue;
    }
    v1::PushReply reply;
    reply.set_version(info.version);
    waiter(EncodeFrame(reply.SerializeAsString(), {}));
  }
  ServeAll(std::move(ready), info);
  return complete.status();
}

// --------------------------------------------------------------------------------------------------------------- norms

absl::Status ServerCoreImpl::BookNorms(const v1::NormsRequest& request, absl::Time now) {
  const int id = request.caller().trainer();
  if (!mode_->exchanges_norms()) {
    return absl::FailedPreconditionError(absl::StrCat(self_, ": its steps need no norms from others"));
  }
  RETURN_IF_ERROR(mode_->CheckBringsNorms(id, roster_->Name(id)));
  const std::string what =
      absl::StrCat(roster_->Name(id), ", norms of step ", request.step(), ", round ", request.round());
  if (request.round() < 0 || request.round() > params_->norm_rounds()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": rounds run from 0 to ", params_->norm_rounds()));
  }
  if (mode_->IsOver(id, request.step())) return absl::OkStatus();
  if (request.step() != book_->of(id).step || !book_->of(id).Complete()) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": the pushes of that step are not complete"));
  }
  if (request.round() == 0) return absl::OkStatus();
  NormRounds& norms = mode_->norms(id);
  const bool waiting = norms.Waiting();
  const absl::Status booked = norms.Book(request.round() - 1, request.norms());
  if (!booked.ok()) return absl::Status(booked.code(), absl::StrCat(what, ": ", booked.message()));
  if (waiting && !norms.Waiting()) roster_->Progressed(id, now);
  return absl::OkStatus();
}

bool ServerCoreImpl::TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) {
  const NormRounds& norms = mode_->norms(call.trainer);
  v1::NormsReply reply;
  reply.set_ready(true);
  if (mode_->IsOver(call.trainer, call.step)) {
    reply.set_over(true);
  } else if (mode_->NormsAreComplete(call.round)) {
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
  norm_calls_.RemoveIf([&](const WaitingNorms& call) {
    mu_.AssertHeld();
    return TryAnswerNorms(call, now >= call.deadline, actions);
  });
}

void ServerCoreImpl::HandleNorms(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  AsCaller<v1::NormsRequest>(
      bytes, "NormsRequest", kMaxHeaderBytes, reply,
      [&](const v1::NormsRequest& request, absl::Time now, Actions* actions) -> absl::Status {
        mu_.AssertHeld();
        const int id = request.caller().trainer();
        HandledCall::Describe(handled, id, request.step(), kNorms);
        RETURN_IF_ERROR(BookNorms(request, now));
        WaitingNorms call{id, request.step(), request.round(), WaitUntil(now, request.wait_s()), reply};
        if (TryAnswerNorms(call, now >= call.deadline, actions)) return absl::OkStatus();
        RETURN_IF_ERROR(roster_->CheckWaiting(id, "calls for norms", norm_calls_.CountOf(id)));
        norm_calls_.Add(std::move(call));
        return absl::OkStatus();
      });
  Advance();
}

}  // namespace weir
