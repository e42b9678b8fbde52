// The transpiler's passes, in the order in which they run. A pass is a function of the job and the programs so far; it
// says whether it changed anything, and a second run changes nothing. Adding one means adding its file and a line to
// these lists.
#ifndef WEIR_TRANSPILER_PASSES_H_
#define WEIR_TRANSPILER_PASSES_H_

#include <string>
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

// How to follow the passes of one transpilation through all lists.
struct PassTrace {
  // Not empty: after each pass the programs are written there (the directory is made), as
  // "<number>_<pass>.main.program" and "<number>_<pass>.startup.program", numbers from 01.
  std::string dump_dir = {};
  // Not empty: nothing runs behind the pass of this name.
  std::string stop_after = {};
  // Passes that have run, and whether stop_after was among them.
  int passes = 0;
  bool stopped = false;
};

// Runs them one after the other and verifies the programs after each that has changed something: each by itself
// (framework/graph/verifier.h), and what there is of the split (transpiler/verify_plan.h). An Internal error when they
// do not verify: that is the pass's mistake, and it is named.
absl::Status RunPasses(absl::Span<const Pass> passes, const Job& job, Programs* programs, PassTrace* trace = nullptr);

// The names of all passes, in their order.
std::vector<std::string> PassNames();

// Writes "<number>_<what>.main.program" and "...startup.program" as PassTrace says; nothing without a dump_dir.
absl::Status DumpPrograms(const std::string& what, const Programs& programs, PassTrace* trace);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_H_
