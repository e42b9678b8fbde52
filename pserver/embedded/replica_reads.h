// Reads of a trainer's program from its own dense replica, as the channels above a replica have it.
#ifndef WEIR_PSERVER_EMBEDDED_REPLICA_READS_H_
#define WEIR_PSERVER_EMBEDDED_REPLICA_READS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/embedded/dense_replica.h"

namespace weir {

// Copies rows of parameters that the replica holds, and pulls those of other tables through `servers`. InvalidArgument:
// a parameter has no such row.
absl::Status PullRowsOfReplica(absl::Span<const RowSource::TableRows> tables, DenseReplica* replica,
                               RowSource* servers);

// Checks that `out` can receive the block with index `index` of the replica.
absl::Status CheckReceives(const DenseReplica& replica, int index, const Tensor& out);

}  // namespace weir

#endif  // WEIR_PSERVER_EMBEDDED_REPLICA_READS_H_
