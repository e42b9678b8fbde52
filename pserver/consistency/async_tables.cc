#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/sync_steps.h"

namespace weir {

namespace {

bool RowsOnly(const v1::PullRequest& request) {
  return !request.items().empty() && std::all_of(request.items().begin(), request.items().end(),
                                                 [](const v1::PullItem& item) { return item.width() > 0; });
}

// async_tables: rows of tables take effect as soon as one trainer's step is complete, and are read at any time.
class AsyncTables : public SyncSteps {
 public:
  AsyncTables(Options options, StepBook book)
      : SyncSteps(std::move(options), std::move(book)), tables_taken_(static_cast<size_t>(book_.trainers()), false) {}

  std::optional<Update> Next() override {
    for (int t = 0; t < book_.trainers(); ++t) {
      const BookedStep& booked = book_.of(t);
      if (!booked.Complete() || tables_taken_[static_cast<size_t>(t)]) continue;
      tables_taken_[static_cast<size_t>(t)] = true;
      ++running_;
      const int64_t samples = booked.verdict == v1::APPLY && !booked.TooSmall() ? booked.samples : 0;
      auto own = std::make_shared<std::vector<TrainerGradients>>();
      own->push_back({t, samples, book_.TakeTableGradients(t)});
      const bool effective = samples > 0 && !own->front().gradients.empty();
      return Update{.kind = Update::Kind::kTables,
                    .trainer = t,
                    .step = booked.step,
                    .effective = effective,
                    .part = ServerParams::StepPart::kLater,
                    .gradients = std::move(own)};
    }
    return SyncSteps::Next();
  }

  Effect Finish(const Update& update, bool ok, bool stop, bool joined) override {
    if (update.kind == Update::Kind::kTables) {
      --running_;
      return {};
    }
    if (ok) tables_taken_.assign(tables_taken_.size(), false);
    return SyncSteps::Finish(update, ok, stop, joined);
  }

  void OnDeath(int trainer) override {
    tables_taken_[static_cast<size_t>(trainer)] = false;
    SyncSteps::OnDeath(trainer);
  }

  bool PullReady(const v1::PullRequest& request) const override {
    return RowsOnly(request) || SyncSteps::PullReady(request);
  }

 protected:
  bool HoldsUpdates(const v1::PullRequest& request) const override { return !RowsOnly(request); }

 private:
  // True, by trainer, if the table gradients of its booked step are being applied, or have taken effect.
  std::vector<bool> tables_taken_;
};

REGISTER_CONSISTENCY(async_tables)
({.name = "async_tables",
  .sync = true,
  .facts = {.needs_all_trainers = true, .pulls_name_steps = true, .rows_come_first = true},
  .chosen = [](const v1::Plan&, const v1::TrainingMode& mode) { return mode.async_tables(); },
  .make = NewConsistency<AsyncTables>});

}  // namespace

}  // namespace weir
