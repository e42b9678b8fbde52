// The transpiler's passes, in the order in which they run. A pass is a function of the job and the programs so far; it says
// whether it changed anything, and a second run changes nothing. Adding one means adding its file and a line to these lists.
#ifndef WEIR_TRANSPILER_PASSES_H_
#define WEIR_TRANSPILER_PASSES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

struct Pass {
  const char* name;
  absl::StatusOr<bool> (*run)(const Job& job, Programs* programs);
};

// Model to the program of a single machine: forward, backward, update ops, startup.
const std::vector<Pass>& SingleMachinePasses();
// Cuts and places; adds the plan.
const std::vector<Pass>& PlacementPasses();
// A placed program to that of a trainer.
const std::vector<Pass>& TrainerPasses();

// Runs them one after the other and verifies the programs after each. An Internal error when a program does not verify: that
// is the pass's mistake, and it is named.
absl::Status RunPasses(absl::Span<const Pass> passes, const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_H_
