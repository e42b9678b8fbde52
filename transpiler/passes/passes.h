// Passes of the transpiler, in the order in which they run. A pass is a function of the job and the programs so far; it
// returns whether it changed anything, and a second run changes nothing. To add one, add its file and a line to these
// lists.
#ifndef WEIR_TRANSPILER_PASSES_PASSES_H_
#define WEIR_TRANSPILER_PASSES_PASSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

struct Pass {
  const char* name;
  absl::StatusOr<bool> (*run)(const Job& job, Programs* programs);
};

// From the model to the program of a single machine: forward, backward, update ops, startup.
const std::vector<Pass>& SingleMachinePasses();
// Cutting and placing; adds the plan.
const std::vector<Pass>& PlacementPasses();
// From a placed program to that of a trainer.
const std::vector<Pass>& TrainerPasses();

// Options and state for following the passes of one transpilation through all lists.
struct PassTrace {
  // If not empty: the directory (made if missing) to which the programs are written after each pass, as
  // "<number>_<pass>.main.program" and "<number>_<pass>.startup.program", numbers from 01.
  std::string dump_dir = {};
  // If not empty: no pass runs after the one of this name.
  std::string stop_after = {};
  // Number of passes that have run, and whether stop_after was among them.
  int passes = 0;
  bool stopped = false;
};

// Runs the passes in order. After each that has changed something, verifies the programs: each by itself
// (framework/graph/verifier.h), and the split as far as it exists (transpiler/verify/verify_plan.h). A failed
// verification is a mistake of the pass: Internal, with the pass's name.
absl::Status RunPasses(absl::Span<const Pass> passes, const Job& job, Programs* programs, PassTrace* trace = nullptr);

// Returns the names of all passes, in order.
std::vector<std::string> PassNames();

// Writes "<number>_<what>.main.program" and "...startup.program" as described at PassTrace; does nothing without a
// dump_dir.
absl::Status DumpPrograms(const std::string& what, const Programs& programs, PassTrace* trace);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_PASSES_H_
