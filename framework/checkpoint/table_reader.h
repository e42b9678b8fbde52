// Reads one table of a checkpoint by ranges of logical shards, and finds its changes between two checkpoints. Memory is
// that of a range, not of the table.
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

// Rows sorted by (logical shard, id): ids [n], rows [n, width + state_width].
struct TableRowsRead {
  std::vector<int64_t> ids;
  std::vector<float> rows;
};

class TableReader {
 public:
  // Opens a table. `directory` is that of a checkpoint that was verified before: sizes are checked here, checksums are
  // not. NotFound if there is no such table (lists the tables). DataLoss.
  static absl::StatusOr<TableReader> Open(const std::string& directory, const v1::CheckpointManifest& manifest,
                                          std::string_view table);

  const TableLayout& layout() const { return layout_; }
  int64_t rows() const { return rows_; }
  // Reads the rows of logical shards [begin, end). DataLoss if an id occurs twice.
  absl::StatusOr<TableRowsRead> Read(uint32_t begin, uint32_t end) const;

 private:
  TableLayout layout_;
  int64_t rows_ = 0;
  std::vector<std::unique_ptr<ShardReader>> readers_;
};

// Rows of a range that are new or differ, sorted by (logical shard, id), and ids that no longer exist.
struct TableChanges {
  std::vector<int64_t> ids;
  std::vector<float> rows;  // [ids.size(), floats of a row as asked for]
  std::vector<int64_t> removed;
};

// Visits the changes of a table in order of its logical shards. `before` null: every row is new. A row differs if a bit
// of its values (with `state`: or of its state) differs; without `state` rows have no state. FailedPrecondition if the
// two layouts differ. Stops at the first error of `visit` and returns it.
absl::Status VisitChanges(const TableReader& now, const TableReader* before, bool state,
                          const std::function<absl::Status(const TableChanges&)>& visit);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_TABLE_READER_H_
