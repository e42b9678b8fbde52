// Runs passes (transpiler/passes/pass.h): verifies what each has changed, writes dumps, stops where the user says.
#ifndef WEIR_TRANSPILER_PASSES_PASSES_H_
#define WEIR_TRANSPILER_PASSES_PASSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/base/programs.h"
#include "transpiler/passes/pass.h"

namespace weir {

struct Job;

// Return the registered passes of a phase, in order.
const std::vector<Pass>& SingleMachinePasses();
const std::vector<Pass>& PlacementPasses();
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
