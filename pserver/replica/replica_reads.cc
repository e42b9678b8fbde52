#include "pserver/replica/replica_reads.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

absl::Status PullRowsOfReplica(absl::Span<const RowSource::TableRows> tables, DenseReplica* replica,
                               RowSource* servers) {
  std::vector<RowSource::TableRows> of_servers;
  for (const RowSource::TableRows& rows : tables) {
    if (replica->Holds(rows.table)) {
      RETURN_IF_ERROR(replica->CopyRows(rows.table, *rows.ids, rows.width, rows.rows));
    } else {
      of_servers.push_back(rows);
    }
  }
  return of_servers.empty() ? absl::OkStatus() : servers->PullRows(of_servers);
}

absl::Status ReplicaRowsAhead::PullRows(absl::Span<const TableRows> tables) {
  left_.clear();
  std::vector<TableRows> of_servers;
  for (const TableRows& rows : tables) (replica_.Holds(rows.table) ? left_ : of_servers).push_back(rows);
  return of_servers.empty() ? absl::OkStatus() : servers_.PullRows(of_servers);
}

absl::Status ReplicaRowsAhead::FinishRows() {
  RETURN_IF_ERROR(servers_.FinishRows());
  for (const TableRows& rows : left_) {
    RETURN_IF_ERROR(replica_.CopyRows(rows.table, *rows.ids, rows.width, rows.rows));
  }
  return absl::OkStatus();
}

absl::Status CheckReceives(const DenseReplica& replica, int index, const Tensor& out) {
  const v1::PlacedBlock& block = replica.block(index).placed;
  if (out.dtype() == v1::FLOAT32 && out.size() == block.element_count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", block.name(), "' has ", block.element_count(),
                                                 " floats, the variable ", ShapeString(out.dims())));
}

}  // namespace weir
