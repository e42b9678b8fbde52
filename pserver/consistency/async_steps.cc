#include "pserver/consistency/async_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/membership/limits.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/replies.h"

namespace weir {

AsyncSteps::AsyncSteps(Options options, StepBook* book)
    : Consistency(std::move(options), book), transactions_(static_cast<size_t>(book->trainers())) {}

bool AsyncSteps::IsOver(int trainer, int64_t step) const { return step <= At(trainer).applied_step; }

absl::Status AsyncSteps::CheckTurn(int trainer, int64_t step, const std::string& what) const {
  const int64_t booked = book_->of(trainer).step;
  if (booked < 0 || step == booked) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, ": step ", booked, " is not finished"));
}

bool AsyncSteps::AnswersAfterUpdate(int trainer) const {
  const BookedStep& booked = book_->of(trainer);
  // If the trainer has to bring norms, the answer to the norms waits instead.
  const bool brings_norms = options_.exchanges_norms && booked.samples > 0 && booked.verdict == v1::APPLY;
  return booked.Complete() && !brings_norms;
}

void AsyncSteps::AwaitUpdate(int trainer, const ReplyCallback& reply, Actions* actions) {
  WaitAsNewest(reply, kMaxWaitingCalls, &At(trainer).waiters, actions);
}

std::vector<ReplyCallback> AsyncSteps::TakeWaiters(int trainer) {
  // Calls that wait for a step that is taking effect are answered with its outcome.
  if (At(trainer).applies) return {};
  return std::exchange(At(trainer).waiters, {});
}

std::optional<Update> AsyncSteps::Next() {
  for (int t = 0; t < book_->trainers(); ++t) {
    Transaction& own = At(t);
    const BookedStep& booked = book_->of(t);
    if (!booked.Complete() || own.norms.Waiting() || own.applies) continue;
    if (own.gathered == nullptr) {
      own.norms = NormRounds(options_.norm_rounds);
      auto gathered = std::make_shared<std::vector<TrainerGradients>>();
      gathered->push_back({t, booked.samples, book_->TakeGradients(t)});
      own.gathered = std::move(gathered);
    }
    own.applies = true;
    ++running_;
    return Update{.kind = Update::Kind::kTransaction,
                  .trainer = t,
                  .step = booked.step,
                  .effective = booked.samples > 0 && booked.verdict == v1::APPLY,
                  .part = LastPart(t),
                  .gradients = own.gathered,
                  .norms = own.norms};
  }
  return std::nullopt;
}

void AsyncSteps::Hold(Update update, bool gone) {
  --running_;
  At(update.trainer).applies = false;
  if (gone) {
    Drop(update.trainer);
  } else {
    At(update.trainer).norms = std::move(update.norms);
  }
}

void AsyncSteps::Drop(int trainer) {
  book_->Clear(trainer);
  At(trainer).gathered = nullptr;
  At(trainer).norms = NormRounds();
}

void AsyncSteps::StepOver(int trainer, int64_t step, int64_t /*samples*/, bool /*joined*/) {
  set_applied_step(trainer, step);
}

Consistency::Effect AsyncSteps::Finish(const Update& update, bool /*ok*/, bool /*stop*/, bool joined) {
  --running_;
  const int64_t samples = update.gradients->front().samples;
  At(update.trainer).applies = false;
  StepOver(update.trainer, update.step, samples, joined);
  Drop(update.trainer);
  if (samples > 0) CountPushes(update.effective, 1);
  ++version_.version;
  version_.samples = samples;
  version_.skipped = !update.effective && samples > 0;
  return {.transaction = update.effective, .waiters = std::exchange(At(update.trainer).waiters, {})};
}

bool AsyncSteps::PullReady(const v1::PullRequest& request) const { return version_.version >= request.version(); }

std::vector<Consistency::Blocker> AsyncSteps::BlockersOf(const v1::PullRequest&) const { return {}; }

void AsyncSteps::OnJoin(int trainer) {
  Drop(trainer);
  At(trainer).waiters.clear();
}

void AsyncSteps::OnDeath(int trainer) {
  // A step that is taking effect goes through.
  if (!At(trainer).applies) Drop(trainer);
}

// --------------------------------------------------------------------------------------------------- bounded staleness

BoundedSteps::BoundedSteps(Options options, StepBook* book)
    : AsyncSteps(std::move(options), book),
      gate_(book->trainers(), options_.staleness),
      most_steps_(options_.counters->Get("staleness.most_steps", "steps")) {}

bool BoundedSteps::PullReady(const v1::PullRequest& request) const {
  return gate_.MayBegin(request.caller().trainer(), request.version());
}

void BoundedSteps::PullBegins(const v1::PullRequest& request) {
  const int64_t before = gate_.most_ahead();
  gate_.Begin(request.caller().trainer(), request.version());
  most_steps_->Add(gate_.most_ahead() - before);
}

std::vector<Consistency::Blocker> BoundedSteps::BlockersOf(const v1::PullRequest& request) const {
  std::vector<Blocker> blockers;
  for (int t : gate_.HeldBy(request.caller().trainer(), request.version())) {
    const int64_t step = applied_step(t);
    blockers.push_back(
        {.trainer = t,
         .detail = step < 0 ? ", which has finished no step" : absl::StrCat(", which has finished step ", step)});
  }
  return blockers;
}

bool BoundedSteps::WaitsForOthers(int trainer, const std::vector<int64_t>& pulls) const {
  if (AsyncSteps::WaitsForOthers(trainer, pulls)) return true;
  // It may not begin its step. A pull ahead of the step in hand says nothing of that one.
  const int64_t next = applied_step(trainer) + 1;
  return std::any_of(pulls.begin(), pulls.end(), [next](int64_t step) { return step <= next; });
}

void BoundedSteps::OnJoin(int trainer) {
  AsyncSteps::OnJoin(trainer);
  gate_.Join(trainer);
}

void BoundedSteps::OnDone(int trainer) { gate_.Leave(trainer); }

void BoundedSteps::OnDeath(int trainer) {
  AsyncSteps::OnDeath(trainer);
  gate_.Leave(trainer);
}

void BoundedSteps::RestoreSteps(int trainer, int64_t steps) {
  AsyncSteps::RestoreSteps(trainer, steps);
  gate_.Finished(trainer, steps - 1);
}

void BoundedSteps::StepOver(int trainer, int64_t step, int64_t samples, bool joined) {
  if (samples == 0) {
    // Its streams have ended, or it stops: nobody waits for it. The step is none that it has done.
    gate_.Leave(trainer);
    return;
  }
  AsyncSteps::StepOver(trainer, step, samples, joined);
  // Samples after a push without: it was not the last.
  if (joined) gate_.Join(trainer);
  gate_.Finished(trainer, step);
}

// --------------------------------------------------------------------------------------------------------------- eager

EagerParts::EagerParts(Options options, StepBook* book)
    : AsyncSteps(std::move(options), book), begun_(static_cast<size_t>(book->trainers()), false) {}

absl::Status EagerParts::CheckVerdict(v1::Verdict verdict, const std::string& what) const {
  if (verdict != v1::SKIP) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": verdict SKIP, but parts have taken effect (async_apply EAGER)"));
}

bool EagerParts::AppliesOnArrival(const v1::PushRequest& request) const {
  return request.samples() > 0 && !request.has_part_count();
}

Update EagerParts::ApplyOnArrival(const v1::PushRequest& request, std::vector<Gradient> gradients) {
  const int trainer = request.caller().trainer();
  const bool first = !begun_[static_cast<size_t>(trainer)];
  begun_[static_cast<size_t>(trainer)] = true;
  ++running_;
  auto own = std::make_shared<std::vector<TrainerGradients>>();
  own->push_back({trainer, request.samples(), std::move(gradients)});
  return Update{.kind = Update::Kind::kPart,
                .trainer = trainer,
                .step = request.step(),
                .part = first ? ServerParams::StepPart::kFirst : ServerParams::StepPart::kLater,
                .gradients = std::move(own)};
}

Consistency::Effect EagerParts::Finish(const Update& update, bool ok, bool stop, bool joined) {
  if (update.kind != Update::Kind::kPart) return AsyncSteps::Finish(update, ok, stop, joined);
  --running_;
  return {};
}

void EagerParts::Drop(int trainer) {
  AsyncSteps::Drop(trainer);
  begun_[static_cast<size_t>(trainer)] = false;
}

ServerParams::StepPart EagerParts::LastPart(int trainer) const {
  return begun_[static_cast<size_t>(trainer)] ? ServerParams::StepPart::kLater : ServerParams::StepPart::kWhole;
}

namespace {

REGISTER_CONSISTENCY(async)({.name = "async", .make = NewConsistency<AsyncSteps>});
REGISTER_CONSISTENCY(bounded_staleness)
({.name = "bounded_staleness",
  .chosen = [](const v1::Plan&, const v1::TrainingMode& mode) { return mode.staleness() >= 0; },
  .make = NewConsistency<BoundedSteps>});
REGISTER_CONSISTENCY(eager)
({.name = "async_apply EAGER",
  .chosen = [](const v1::Plan& plan, const v1::TrainingMode&) { return plan.async_eager(); },
  .make = NewConsistency<EagerParts>});

}  // namespace

}  // namespace weir
