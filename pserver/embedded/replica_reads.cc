#include "pserver/embedded/replica_reads.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pserver/server/server_params.h"

namespace weir {

absl::Status PullRowsOfReplica(absl::Span<const RowSource::TableRows> tables, DenseReplica* replica,
                               RowSource* servers) {
  std::vector<RowSource::TableRows> of_servers;
  for (const RowSource::TableRows& rows : tables) {
    const int block = replica->params().FindBlock(rows.table);
    if (block < 0) {
      of_servers.push_back(rows);
      continue;
    }
    const int64_t height = replica->params().block(block).count / std::max(1, rows.width);
    for (const int64_t id : *rows.ids) {
      if (id >= 0 && id < height) continue;
      return absl::InvalidArgumentError(absl::StrCat("'", rows.table, "' has no row ", id, ", only ", height));
    }
    replica->params().CopyRows(block, *rows.ids, rows.rows);
  }
  return of_servers.empty() ? absl::OkStatus() : servers->PullRows(of_servers);
}

absl::Status CheckReceives(const DenseReplica& replica, int index, const Tensor& out) {
  const BlockInfo& block = replica.params().block(index);
  if (out.dtype() == v1::FLOAT32 && out.size() == block.count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", block.name, "' has ", block.count, " floats, the variable ", ShapeString(out.dims())));
}

}  // namespace weir
