#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pserver/consistency/async_steps.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/staleness_gate.h"

namespace weir {

namespace {

// Bounded staleness: a pull, with which a trainer begins a step, waits until the trainer may (staleness_gate.h).
class BoundedSteps : public AsyncSteps {
 public:
  BoundedSteps(Options options, StepBook book)
      : AsyncSteps(std::move(options), std::move(book)),
        gate_(book_.trainers(), options_.staleness),
        most_steps_(options_.counters->Get("staleness.most_steps", "steps")) {}

  bool PullReady(const v1::PullRequest& request) const override {
    return gate_.MayBegin(request.caller().trainer(), request.version());
  }

  void PullBegins(const v1::PullRequest& request) override {
    const int64_t before = gate_.most_ahead();
    gate_.Begin(request.caller().trainer(), request.version());
    most_steps_->Add(gate_.most_ahead() - before);
  }

  std::vector<Blocker> BlockersOf(const v1::PullRequest& request) const override {
    std::vector<Blocker> blockers;
    for (int t : gate_.HeldBy(request.caller().trainer(), request.version())) {
      const int64_t step = applied_step(t);
      blockers.push_back(
          {.trainer = t,
           .detail = step < 0 ? ", which has finished no step" : absl::StrCat(", which has finished step ", step)});
    }
    return blockers;
  }

  bool WaitsForOthers(int trainer, const std::vector<int64_t>& pulls) const override {
    if (AsyncSteps::WaitsForOthers(trainer, pulls)) return true;
    // It may not begin its step. A pull ahead of the step in hand says nothing of that one.
    const int64_t next = applied_step(trainer) + 1;
    return std::any_of(pulls.begin(), pulls.end(), [next](int64_t step) { return step <= next; });
  }

  void OnJoin(int trainer) override {
    AsyncSteps::OnJoin(trainer);
    gate_.Join(trainer);
  }

  void OnDone(int trainer) override { gate_.Leave(trainer); }

  void OnDeath(int trainer) override {
    AsyncSteps::OnDeath(trainer);
    gate_.Leave(trainer);
  }

 protected:
  void RestoreSteps(int trainer, int64_t steps) override {
    AsyncSteps::RestoreSteps(trainer, steps);
    gate_.Finished(trainer, steps - 1);
  }

  void StepOver(int trainer, int64_t step, int64_t samples, bool joined) override {
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

 private:
  StalenessGate gate_;
  Counter* const most_steps_;
};

REGISTER_CONSISTENCY(bounded_staleness)
({.name = "bounded_staleness",
  .facts = {.counts_transactions = true},
  .chosen = [](const v1::Plan&, const v1::TrainingMode& mode) { return mode.staleness() >= 0; },
  .make = NewConsistency<BoundedSteps>});

}  // namespace

}  // namespace weir
