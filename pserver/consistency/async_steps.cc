#include "pserver/consistency/async_steps.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/membership/limits.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/replies.h"

namespace weir {

AsyncSteps::AsyncSteps(Options options, StepBook book)
    : Consistency(std::move(options), std::move(book)), transactions_(static_cast<size_t>(book_.trainers())) {}

absl::Status AsyncSteps::CheckTurn(int trainer, int64_t step, const std::string& what) const {
  const int64_t booked = book_.of(trainer).step;
  if (booked < 0 || step == booked) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, ": step ", booked, " is not finished"));
}

bool AsyncSteps::AnswersAfterUpdate(int trainer) const {
  const BookedStep& booked = book_.of(trainer);
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
  for (int t = 0; t < book_.trainers(); ++t) {
    Transaction& own = At(t);
    const BookedStep& booked = book_.of(t);
    if (!booked.Complete() || own.norms.Waiting() || own.applies) continue;
    if (own.gathered == nullptr) {
      own.norms = NormRounds(options_.norm_rounds);
      auto gathered = std::make_shared<std::vector<TrainerGradients>>();
      gathered->push_back({t, booked.samples, book_.TakeGradients(t)});
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
  book_.Clear(trainer);
  At(trainer).gathered = nullptr;
  At(trainer).norms = NormRounds();
}

void AsyncSteps::StepOver(int trainer, int64_t step, int64_t /*samples*/, bool /*joined*/) {
  set_applied_step(trainer, step);
}

UpdateRules::Effect AsyncSteps::Finish(const Update& update, bool /*ok*/, bool /*stop*/, bool joined) {
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

void AsyncSteps::OnJoin(int trainer) {
  Drop(trainer);
  At(trainer).waiters.clear();
}

void AsyncSteps::OnDeath(int trainer) {
  // A step that is taking effect goes through.
  if (!At(trainer).applies) Drop(trainer);
}

namespace {

REGISTER_CONSISTENCY(async)
({.name = "async", .facts = {.counts_transactions = true}, .make = NewConsistency<AsyncSteps>});

}  // namespace

}  // namespace weir
