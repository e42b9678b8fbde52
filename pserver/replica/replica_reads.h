// Reads of a trainer's program from its own dense replica, as the channels above a replica have it.
#ifndef WEIR_PSERVER_REPLICA_REPLICA_READS_H_
#define WEIR_PSERVER_REPLICA_REPLICA_READS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

// Copies rows of parameters that the replica holds, and pulls those of other tables through `servers`. InvalidArgument:
// a parameter has no such row.
absl::Status PullRowsOfReplica(absl::Span<const RowSource::TableRows> tables, DenseReplica* replica,
                               RowSource* servers);

// Rows for a step that are pulled ahead of it: those of tables through `servers`. Rows of parameters that the replica
// holds are copied when the step has come. Threads as RowSource.
class ReplicaRowsAhead : public RowSource {
 public:
  // Borrows both.
  ReplicaRowsAhead(DenseReplica* replica, RowSource* servers) : replica_(*replica), servers_(*servers) {}

  absl::Status BeginStep(int64_t step, bool read_only) override { return servers_.BeginStep(step, read_only); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override;
  absl::Status FinishRows() override;

 private:
  DenseReplica& replica_;
  RowSource& servers_;
  std::vector<TableRows> left_;  // of the replica
};

// Checks that `out` can receive the block with index `index` of the replica.
absl::Status CheckReceives(const DenseReplica& replica, int index, const Tensor& out);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_REPLICA_READS_H_
