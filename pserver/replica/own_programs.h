// Programs of a server inside a trainer, made from the optimize blocks that the trainer's own program carries
// (transpiler/passes/keep_updates.h).
#ifndef WEIR_PSERVER_REPLICA_OWN_PROGRAMS_H_
#define WEIR_PSERVER_REPLICA_OWN_PROGRAMS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/program.pb.h"

namespace weir {

// Optimize blocks of the trainer's main program, and the block of its learning rates; -1: rates are constant.
struct OwnUpdates {
  const google::protobuf::RepeatedField<int32_t>* blocks = nullptr;
  int lr_block = -1;
};

struct OwnPrograms {
  v1::ProgramDesc main, startup;
};

// Returns the programs of server 0 of 1, which owns all blocks of the plan and serves one trainer. InvalidArgument if
// the startup program has no block with initial values.
absl::StatusOr<OwnPrograms> MakeOwnPrograms(const v1::ProgramDesc& main, const v1::ProgramDesc& startup,
                                            const OwnUpdates& updates);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_OWN_PROGRAMS_H_
