#include "pserver/consistency/sync_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pserver/consistency/make_consistency.h"

namespace weir {

namespace {

// Less than this is no news: trainers are never even.
constexpr absl::Duration kLeastLate = absl::Milliseconds(100);

// Sets the trainer that was the last to complete the step, if it was much later than all others.
void SetLate(const StepBook& book, VersionInfo* info) {
  int last = -1;
  absl::Time latest = absl::InfinitePast(), before = absl::InfinitePast();
  for (int t = 0; t < book.trainers(); ++t) {
    if (book.of(t).sender >= 0) continue;  // another one sends its gradients
    const absl::Time completed = book.of(t).completed;
    before = std::max(before, std::min(completed, latest));
    if (completed <= latest) continue;
    latest = completed;
    last = t;
  }
  if (before == absl::InfinitePast() || latest - before < kLeastLate) return;
  info->late_trainer = last;
  info->late = latest - before;
}

}  // namespace

absl::Status SyncSteps::CheckTurn(int /*trainer*/, int64_t step, const std::string& what) const {
  if (step <= version_.version) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", options_.self, " is at step ", version_.version));
}

VersionInfo SyncSteps::NextVersion() const {
  VersionInfo next{.version = version_.version + 1};
  for (int t = 0; t < book_.trainers(); ++t) {
    const BookedStep& booked = book_.of(t);
    next.samples += booked.samples;
    next.first_samples += booked.first_samples;
    next.skipped |= booked.verdict == v1::SKIP;
    next.ended |= booked.verdict == v1::END;
  }
  // Examples that streams have left when others have ended are too few for a step at the full learning rate.
  next.ended |= next.samples == 0 || 2 * next.samples < next.first_samples;
  SetLate(book_, &next);
  return next;
}

std::optional<Update> SyncSteps::Next() {
  const bool complete = running_ == 0 && book_.AllComplete(version_.version) && !norms_.Waiting();
  update_due_ = complete && reads_ > 0;
  if (!complete || update_due_) return std::nullopt;
  if (gathered_ == nullptr) {
    norms_ = NormRounds(options_.norm_rounds);
    auto gathered = std::make_shared<std::vector<TrainerGradients>>();
    for (int t = 0; t < book_.trainers(); ++t) {
      gathered->push_back({t, book_.of(t).samples, book_.TakeGradients(t)});
    }
    gathered_ = std::move(gathered);
  }
  ++running_;
  next_ = NextVersion();
  return Update{.kind = Update::Kind::kStep,
                .step = version_.version,
                .effective = !next_.ended && !next_.skipped,
                .part = facts().rows_come_first ? ServerParams::StepPart::kLater : ServerParams::StepPart::kWhole,
                .gradients = gathered_,
                .norms = norms_};
}

void SyncSteps::Hold(Update update, bool /*gone*/) {
  --running_;
  norms_ = std::move(update.norms);
}

UpdateRules::Effect SyncSteps::Finish(const Update& /*update*/, bool ok, bool stop, bool /*joined*/) {
  --running_;
  // The step that ends a run is none.
  if (!next_.ended) CountPushes(!next_.skipped, book_.trainers());
  if (!ok) return {};
  // From here on the answer of this version is fixed, also if someone asks for the end a moment later.
  next_.stop = stop;
  version_ = next_;
  gathered_ = nullptr;
  norms_ = NormRounds();
  for (int t = 0; t < book_.trainers(); ++t) book_.Clear(t);
  return {};
}

absl::Status SyncSteps::CheckBringsNorms(int trainer, const std::string& name) const {
  if (trainer == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.self, ": in sync trainer 0 brings the norms; this is ", name));
}

absl::Status SyncSteps::CheckControlled(int64_t step) const {
  if (step == version_.version) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options_.self, " is at step ", version_.version, ", asked for step ", step));
}

bool SyncSteps::PullReady(const v1::PullRequest& request) const {
  // Values are not read while a step takes effect, except rows that are corrected when it has.
  return version_.version >= request.version() && (running_ == 0 || request.has_ahead_of());
}

std::vector<PullRules::Blocker> SyncSteps::BlockersOf(const v1::PullRequest&) const {
  if (norms_.Waiting()) {
    return {{.trainer = 0,
             .detail = absl::StrCat(", which brings the norms of step ", version_.version),
             .owes_norms = true}};
  }
  std::vector<Blocker> blockers;
  for (int t = 0; t < book_.trainers(); ++t) {
    if (book_.of(t).IsDue()) blockers.push_back({.trainer = t});
  }
  return blockers;
}

void SyncSteps::OnDeath(int trainer) { book_.Clear(trainer); }

namespace {

REGISTER_CONSISTENCY(sync)
({.name = "sync",
  .sync = true,
  .facts = {.needs_all_trainers = true, .pulls_name_steps = true, .answers_ahead = true, .takes_merged = true},
  .make = NewConsistency<SyncSteps>});

}  // namespace

}  // namespace weir
