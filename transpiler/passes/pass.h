// Registry of passes. A pass is a function of the job and the programs so far; it registers itself from its own file,
// with its place among the others. Registration happens before main; the order of passes follows from their places
// alone, never from the order in which they are linked.
#ifndef WEIR_TRANSPILER_PASSES_PASS_H_
#define WEIR_TRANSPILER_PASSES_PASS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Stages of a transpilation, in order.
enum class Phase {
  // From the model to the program of a single machine: forward, backward, update ops, startup.
  kSingleMachine,
  // Cutting and placing; adds the plan.
  kPlacement,
  // From a placed program to that of a trainer.
  kTrainer,
};

struct Pass {
  const char* name = "";
  // Returns whether it changed anything; a second run changes nothing.
  absl::StatusOr<bool> (*run)(const Job& job, Programs* programs) = nullptr;
  Phase phase = Phase::kSingleMachine;
  // Names of passes of this phase between which this one runs; "" for the begin and the end of the phase. A pass that
  // is added between two others names both; these need not change.
  const char* after = "";
  const char* before = "";
};

// Returns the passes in the order in which they run: by phases, and in each phase as `after` and `before` say. The
// result does not depend on the order of `passes`. CHECK-fails on a name that is given twice, on a neighbour that is no
// pass of the phase, on passes that wait for each other, and on two passes at the same place (neither runs after the
// other).
std::vector<Pass> InOrder(const std::vector<Pass>& passes);

// Returns the registered passes, ordered.
const std::vector<Pass>& AllPasses();

struct PassRegistrar {
  explicit PassRegistrar(const Pass& pass);
};
#define REGISTER_PASS(name) static const ::weir::PassRegistrar weir_pass_registrar_##name
// At namespace scope:  REGISTER_PASS(place_blocks)({.name = "place_blocks", .run = PlaceBlocks, ...});

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_PASS_H_
