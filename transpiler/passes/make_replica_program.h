// Programs of what a trainer updates itself.
#ifndef WEIR_TRANSPILER_PASSES_MAKE_REPLICA_PROGRAM_H_
#define WEIR_TRANSPILER_PASSES_MAKE_REPLICA_PROGRAM_H_

#include "absl/status/statusor.h"
#include "proto/program.pb.h"
#include "transpiler/base/programs.h"

namespace weir {

// Returns the programs of the replica of a trainer (pserver/replica/dense_replica.h), or of its copy in geo
// (pserver/channels/geo_channel.h), made from the trainer's programs, which carry the optimize blocks
// (transpiler/passes/keep_updates.h): those of one server for one trainer that owns every block of the plan. A replica
// has dense blocks alone and the number of a server behind the job's; if trainers share the updates out, it has those
// blocks, optimize blocks and initial values that name `trainer`, and of the optimize blocks of others their places.
// InvalidArgument: the programs have no such updates, or no initial values of them.
absl::StatusOr<Programs> MakeReplicaProgram(const v1::ProgramDesc& main, const v1::ProgramDesc& startup, int trainer);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_MAKE_REPLICA_PROGRAM_H_
