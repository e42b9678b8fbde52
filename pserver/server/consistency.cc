#include "pserver/server/consistency.h"

#include <algorithm>
#include <utility>

#include "framework/graph/training_mode.h"
#include "pserver/server/async_steps.h"
#include "pserver/server/sync_steps.h"

namespace weir {

Consistency::Consistency(Options options, StepBook* book)
    : options_(std::move(options)),
      book_(book),
      pushes_applied_(options_.counters->Get("push.applied", "steps")),
      pushes_skipped_(options_.counters->Get("push.skipped", "steps")) {}

bool Consistency::WaitsForOthers(int trainer, const std::vector<int64_t>&) const {
  return book_->of(trainer).Complete() && !OwesNorms(trainer);
}

void Consistency::Restore(int64_t step, const std::vector<int64_t>& steps) {
  version_ = VersionInfo{.version = step};
  // Another number of trainers goes on from where all of them had come at least: trainers read on there, too.
  const bool same = steps.size() == static_cast<size_t>(book_->trainers());
  const int64_t least = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  for (int t = 0; t < book_->trainers(); ++t) RestoreSteps(t, same ? steps[static_cast<size_t>(t)] : least);
}

std::unique_ptr<Consistency> MakeConsistency(bool sync, const v1::ProgramDesc& main, Consistency::Options options,
                                             StepBook* book) {
  const TrainingMode mode = ModeOf(main);
  if (sync && mode.async_tables) return std::make_unique<AsyncTables>(std::move(options), book);
  if (sync) return std::make_unique<SyncSteps>(std::move(options), book);
  if (main.plan().async_eager()) return std::make_unique<EagerParts>(std::move(options), book);
  if (options.staleness = mode.staleness; options.staleness >= 0) {
    return std::make_unique<BoundedSteps>(std::move(options), book);
  }
  return std::make_unique<AsyncSteps>(std::move(options), book);
}

}  // namespace weir
