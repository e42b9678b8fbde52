// Programs of one server.
#ifndef WEIR_TRANSPILER_PASSES_MAKE_SERVER_PROGRAM_H_
#define WEIR_TRANSPILER_PASSES_MAKE_SERVER_PROGRAM_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Returns the programs of a server. `single`: the placed program of the single machine. Block 0 of the server's main
// program has the variables it owns and listen_and_serv. Then follows, in order of the update ops, one block per
// parameter block or table it owns: the average (merge; by trainers sum and scale) and all ops with role OPTIMIZE of
// that parameter, with the names and shapes of the block. State variables of block "w.block1" are "w.block1.<state>".
// If the program has ops with role LR_SCHEDULE, one more block has all of them, equal on every server (lr_block of
// listen_and_serv). Gradients are variables that arrive from outside (stop_gradient). A server that owns nothing has no
// optimize blocks and serves nonetheless. Errors: an update op that mixes a cut parameter with a variable that cannot
// be cut along; a schedule that reads a variable that is not on servers. Precondition: 0 <= server < plan.servers.
absl::StatusOr<Programs> MakeServerProgram(const Job& job, const v1::ProgramDesc& single, int server);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_MAKE_SERVER_PROGRAM_H_
