// Pass: builds the startup program, which gives initial values to the variables that a process holds.
#ifndef WEIR_TRANSPILER_PASSES_BUILD_STARTUP_H_
#define WEIR_TRANSPILER_PASSES_BUILD_STARTUP_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Before: a main program whose persistable variables carry initializers. After: a startup program with one INIT op per
// persistable dense variable of block 0: first variables that are no parameters (learning rates, then state), then
// parameters. Pieces (block_of) get the values of their place in the whole variable. Tables have no INIT op: their rows
// are made on first use. InvalidArgument: a persistable variable without an initializer. Returns false if the startup
// program already has blocks.
absl::StatusOr<bool> BuildStartup(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_BUILD_STARTUP_H_
