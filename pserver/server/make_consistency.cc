#include "pserver/server/make_consistency.h"

#include <utility>

#include "framework/graph/training_mode.h"
#include "pserver/server/async_steps.h"
#include "pserver/server/sync_steps.h"

namespace weir {

std::unique_ptr<Consistency> MakeConsistency(bool sync, const v1::ProgramDesc& main, Consistency::Options options,
                                             StepBook* book) {
  const v1::TrainingMode mode = ModeOf(main);
  if (sync && mode.async_tables()) return std::make_unique<AsyncTables>(std::move(options), book);
  if (sync) return std::make_unique<SyncSteps>(std::move(options), book);
  if (main.plan().async_eager()) return std::make_unique<EagerParts>(std::move(options), book);
  if (options.staleness = mode.staleness(); options.staleness >= 0) {
    return std::make_unique<BoundedSteps>(std::move(options), book);
  }
  return std::make_unique<AsyncSteps>(std::move(options), book);
}

}  // namespace weir
