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

absl::StatusOr<StepDesk::Booked> ServerCoreImpl::BookPart(const v1::PushRequest& request,
                                                          std::vector<Gradient> gradients, size_t message,
                                                          Actions* actions) {
  ASSIGN_OR_RETURN(const absl::Time now, ActFor(request.caller(), actions));
  absl::Status failure;
  // A waiting control action comes first: it runs between updates, so no update may begin before it.
  absl::StatusOr<StepDesk::Booked> booked =
      steps_->Book(request, std::move(gradients), message, /*may_apply=*/controls_.idle(), now, &failure);
  if (!failure.ok()) Fail(failure, actions);
  if (!booked.ok()) return booked;
  if (!booked->reply.duplicate()) saves_.Pushed();
  if (booked->apply.has_value()) booked->apply->table_step = runner_->table_steps();
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
  absl::StatusOr<StepDesk::Booked> booked;
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
    // A push that waits is answered with the other waiting calls, by an error, too.
    if (!booked.ok() || !booked->wait) reply(status);
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
        // The thread that ends the last running update, or the last read, calls Advance again.
        if (mode_->running() > 0 || (pulls_->reading() && controls_.sets_values())) return;
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
  UpdateRules::Effect effect;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  absl::Status failed;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    // Trainer 0 brings the norms of a step of all trainers.
    const int actor = std::max(0, update.trainer);
    if (complete.ok() && !*complete) {
      mode_->Hold(std::move(update), roster_->place(actor).state == RosterPlace::kDead);
      // From now on the others wait for the norms that this trainer brings.
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
    ready = pulls_->TakeReadyPulls(now);
    steps_->AnswerNorms(now, &actions);
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

void ServerCoreImpl::HandleNorms(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  AsCaller<v1::NormsRequest>(bytes, "NormsRequest", kMaxHeaderBytes, reply,
                             [&](const v1::NormsRequest& request, absl::Time now, Actions* actions) -> absl::Status {
                               mu_.AssertHeld();
                               HandledCall::Describe(handled, request.caller().trainer(), request.step(), kNorms);
                               return steps_->HandleNorms(request, reply, now, actions);
                             });
  Advance();
}

}  // namespace weir
