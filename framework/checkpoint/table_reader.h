// One table of a checkpoint, read range by range of logical shards, and what changed in it between two checkpoints.
// Memory is that of a range, not of the table.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_TABLE_READER_H_
#define WEIR_FRAMEWORK_CHECKPOINT_TABLE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/shard.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Rows by (logical shard, id): ids [n], rows [n, width + state_width].
struct TableRowsRead {
  std::vector<int64_t> ids;
  std::vector<float> rows;
};

class TableReader {
 public:
  // `directory` of a checkpoint that was verified before: sizes are checked here, checksums are not. NotFound: no such
  // table, with those that there are. DataLoss.
  static absl::StatusOr<TableReader> Open(const std::string& directory, const v1::CheckpointManifest& manifest,
                                          std::string_view table);

  const TableLayout& layout() const { return layout_; }
  int64_t rows() const { return rows_; }
  // Rows of logical shards [begin, end). DataLoss: an id is there twice.
  absl::StatusOr<TableRowsRead> Read(uint32_t begin, uint32_t end) const;

 private:
  TableLayout layout_;
  int64_t rows_ = 0;
  std::vector<std::unique_ptr<ShardReader>> readers_;
};

// Rows of a range that are new or differ, by (logical shard, id), and ids that are gone.
struct TableChanges {
  std::vector<int64_t> ids;
  std::vector<float> rows;  // [ids.size(), floats of a row as asked for]
  std::vector<int64_t> removed;
};

// Goes through the table in order of its logical shards. `before` null: every row is new. A row differs when a bit of
// its values (with `state`: or of its state) does; without `state` rows come without it. FailedPrecondition: the two do
// not have the same layout. Stops at the first error of `visit` and returns it.
absl::Status VisitChanges(const TableReader& now, const TableReader* before, bool state,
                          const std::function<absl::Status(const TableChanges&)>& visit);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_TABLE_READER_H_
