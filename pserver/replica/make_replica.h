// Choice of the replica of a trainer that holds all dense parameters.
#ifndef WEIR_PSERVER_REPLICA_MAKE_REPLICA_H_
#define WEIR_PSERVER_REPLICA_MAKE_REPLICA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "proto/program.pb.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

struct ReplicaOptions {
  // Programs of the trainer, made by the transpiler for dense: ALL_REDUCE or read from files. Borrowed for the call.
  const v1::ProgramDesc* main = nullptr;
  const v1::ProgramDesc* startup = nullptr;
  // Borrowed for the life of the replica. `collective`: its ranks are the trainers, by id.
  ThreadPool* pool = nullptr;
  Collective* collective = nullptr;
};

// Returns the replica that the program's mode asks for, with its initial values, which runs the program of
// transpiler/passes/make_replica_program.h. InvalidArgument names what the programs lack.
absl::StatusOr<std::unique_ptr<DenseReplica>> MakeReplica(const ReplicaOptions& options);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_MAKE_REPLICA_H_
