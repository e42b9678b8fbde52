#include "pserver/server/step_desk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "pserver/consistency/replies.h"

namespace weir {

// -------------------------------------------------------------------------------------------------------------- pushes

absl::Status StepDesk::CheckMerged(const v1::PushRequest& request, const std::string& part_name) const {
  if (request.merged().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(options_.pushes->CheckTakesMerged(part_name));
  for (const v1::MergedTrainer& merged : request.merged()) {
    const absl::Status known = options_.roster->CheckNamed(merged.trainer(), merged.session());
    if (!known.ok()) {
      return absl::Status(known.code(),
                          absl::StrCat(part_name, ", merged with trainer ", merged.trainer(), ": ", known.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status StepDesk::CheckTurn(const v1::PushRequest& request, const std::string& part_name,
                                 absl::Status* failure) const {
  const Roster& roster = *options_.roster;
  const int id = request.caller().trainer();
  if (roster.place(id).state == RosterPlace::kDone) {
    return absl::FailedPreconditionError(absl::StrCat(part_name, ": it has said that it is done"));
  }
  RETURN_IF_ERROR(options_.pushes->CheckTurn(id, request.step(), part_name));
  for (const v1::MergedTrainer& merged : request.merged()) {
    RETURN_IF_ERROR(options_.pushes->CheckTurn(merged.trainer(), request.step(), part_name));
  }
  if (!options_.needs_all_trainers) return absl::OkStatus();
  for (int t = 0; t < roster.size(); ++t) {
    if (roster.place(t).state != RosterPlace::kDone) continue;
    return *failure = absl::FailedPreconditionError(absl::StrCat(
               roster.Name(t), " has ended before step ", request.step(), ", which ", roster.Name(id), " pushes"));
  }
  return absl::OkStatus();
}

absl::Status StepDesk::CheckVerdicts(const v1::PushRequest& request, const std::string& part_name) const {
  if (!request.has_part_count()) return absl::OkStatus();
  for (const v1::MergedTrainer& merged : request.merged()) {
    RETURN_IF_ERROR(options_.pushes->CheckVerdict(merged.verdict(), part_name));
  }
  return options_.pushes->CheckVerdict(request.verdict(), part_name);
}

void StepDesk::RecordProgress(const v1::PushRequest& request, absl::Time now) {
  Roster& roster = *options_.roster;
  if (request.stop_requested()) roster.RequestStop();
  roster.Booked(request.caller().trainer(), request.step(), now);
  for (const v1::MergedTrainer& merged : request.merged()) {
    if (merged.stop_requested()) roster.RequestStop();
    roster.Booked(merged.trainer(), request.step(), now);
  }
}

absl::StatusOr<StepDesk::Booked> StepDesk::Book(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                                size_t message, bool may_apply, absl::Time now, absl::Status* failure) {
  PushRules& rules = *options_.pushes;
  StepBook& book = *options_.book;
  const int id = request.caller().trainer();
  const std::string part_name =
      absl::StrCat(options_.roster->Name(id), ", step ", request.step(), ", part ", request.part());
  Booked booked;
  booked.reply.set_version(options_.counts->version().version);
  RETURN_IF_ERROR(StepBook::CheckRange(request, part_name));
  RETURN_IF_ERROR(CheckMerged(request, part_name));
  if (options_.counts->IsOver(id, request.step())) {
    book.RepeatOver();
    booked.reply.set_duplicate(true);
    return booked;
  }
  RETURN_IF_ERROR(CheckTurn(request, part_name, failure));
  RETURN_IF_ERROR(book.CheckMerged(id, request, part_name));
  RETURN_IF_ERROR(book.CheckPart(id, request, part_name));
  if (book.Has(id, request.part())) {
    book.Repeat(id, gradients);
    booked.reply.set_duplicate(true);
    // The answer to a repeat of a step in the middle of taking effect means what the first answer will.
    booked.wait = rules.AnswersAfterUpdate(id);
    return booked;
  }
  const bool applies_now = rules.AppliesOnArrival(request) && may_apply && !gradients.empty();
  const size_t bytes = applies_now ? 0 : PendingBytes(message, gradients);
  RETURN_IF_ERROR(book.CheckBooking(id, request, bytes, part_name));
  RETURN_IF_ERROR(CheckVerdicts(request, part_name));
  book.NumberArrivals(&gradients);
  RecordProgress(request, now);
  if (applies_now) booked.apply = rules.ApplyOnArrival(request, std::exchange(gradients, {}));
  book.Book(id, request, std::move(gradients), bytes, now);
  booked.wait = rules.AnswersAfterUpdate(id);
  return booked;
}

// --------------------------------------------------------------------------------------------------------------- norms

absl::Status StepDesk::HandleNorms(const v1::NormsRequest& request, const ReplyCallback& reply, absl::Time now,
                                   Actions* actions) {
  const int id = request.caller().trainer();
  RETURN_IF_ERROR(BookNorms(request, now));
  Call call{id, request.step(), request.round(), WaitUntil(now, request.wait_s()), reply};
  if (TryAnswer(call, now >= call.deadline, actions)) return absl::OkStatus();
  RETURN_IF_ERROR(options_.roster->CheckWaiting(id, "calls for norms", calls_.CountOf(id)));
  calls_.Add(std::move(call));
  return absl::OkStatus();
}

absl::Status StepDesk::BookNorms(const v1::NormsRequest& request, absl::Time now) {
  const int id = request.caller().trainer();
  if (options_.norm_rounds == 0) {
    return absl::FailedPreconditionError(absl::StrCat(options_.self, ": its steps need no norms from others"));
  }
  RETURN_IF_ERROR(options_.norms->CheckBringsNorms(id, options_.roster->Name(id)));
  const std::string what =
      absl::StrCat(options_.roster->Name(id), ", norms of step ", request.step(), ", round ", request.round());
  if (request.round() < 0 || request.round() > options_.norm_rounds) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": rounds run from 0 to ", options_.norm_rounds));
  }
  if (options_.counts->IsOver(id, request.step())) return absl::OkStatus();
  if (request.step() != options_.book->of(id).step || !options_.book->of(id).Complete()) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": the pushes of that step are not complete"));
  }
  if (request.round() == 0) return absl::OkStatus();
  NormRounds& norms = options_.norms->norms(id);
  const bool waiting = norms.Waiting();
  const absl::Status booked = norms.Book(request.round() - 1, request.norms());
  if (!booked.ok()) return absl::Status(booked.code(), absl::StrCat(what, ": ", booked.message()));
  if (waiting && !norms.Waiting()) options_.roster->Progressed(id, now);
  return absl::OkStatus();
}

bool StepDesk::Ready(const Call& call) const {
  const NormRounds& norms = options_.norms->norms(call.trainer);
  return options_.counts->IsOver(call.trainer, call.step) || options_.norms->NormsAreComplete(call.round) ||
         (norms.Waiting() && norms.round() == call.round);
}

bool StepDesk::TryAnswer(const Call& call, bool final, Actions* actions) {
  const bool ready = Ready(call);
  if (!ready && !final) return false;
  v1::NormsReply reply;
  reply.set_ready(ready);
  if (!ready) {
    reply.set_waiting_for(options_.pulls->WaitingFor(v1::PullRequest()));
  } else if (options_.counts->IsOver(call.trainer, call.step)) {
    reply.set_over(true);
  } else if (!options_.norms->NormsAreComplete(call.round)) {
    options_.norms->norms(call.trainer).Fill(&reply);
  }
  actions->push_back([callback = call.reply, reply = std::move(reply)] { callback(Serialize(reply)); });
  return true;
}

void StepDesk::AnswerNorms(absl::Time now, Actions* actions) {
  calls_.RemoveIf([&](const Call& call) { return TryAnswer(call, now >= call.deadline, actions); });
}

absl::Time StepDesk::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  calls_.ForEach([&](const Call& call) { next = std::min(next, Ready(call) ? absl::InfinitePast() : call.deadline); });
  return next;
}

std::vector<std::pair<int, ReplyCallback>> StepDesk::TakeWaiting(int trainer) {
  std::vector<std::pair<int, ReplyCallback>> taken;
  calls_.RemoveIf([&](Call& call) {
    if (trainer >= 0 && call.trainer != trainer) return false;
    taken.emplace_back(call.trainer, std::move(call.reply));
    return true;
  });
  return taken;
}

}  // namespace weir
