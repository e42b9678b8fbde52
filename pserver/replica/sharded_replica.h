// Replica of a trainer that updates a share of the dense parameters (distribute.update is SHARDED). It has the
// optimizer state of its share alone, runs its updates, and gives the new values to the others
// (pserver/replica/gathered_values.h).
#ifndef WEIR_PSERVER_REPLICA_SHARDED_REPLICA_H_
#define WEIR_PSERVER_REPLICA_SHARDED_REPLICA_H_

#include <memory>

#include "pserver/replica/dense_replica.h"

namespace weir {

// Requires: the trainer in the place of each block is a rank of parts.collective.
std::unique_ptr<DenseReplica> MakeShardedReplica(DenseReplica::Parts parts);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_SHARDED_REPLICA_H_
