// State of a table that persists: its rows, and each of its memories of ids without a row, which is saved, loaded and
// digested as a table of its own.
#ifndef WEIR_PSERVER_PARAMS_PERSISTENT_ROWS_H_
#define WEIR_PSERVER_PARAMS_PERSISTENT_ROWS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/checkpoint/shard.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

class PersistentRows {
 public:
  // Returns the rows of a table, followed by the memories that it keeps. Borrows `table`.
  static std::vector<PersistentRows> Of(SparseTable* table);

  // Returns what follows the name of the table in the name of a memory: "@candidates" or "@tombstones".
  static std::string Suffix(SparseTable::Memory memory);

  const TableLayout& layout() const { return layout_; }
  SparseTable* table() const { return table_; }

  // Copies the rows [n, layout.width + layout.state_width()] of a stripe, by (logical shard, id).
  absl::Status CopyStripe(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const;
  // Calls fn(id, row) for every row of a stripe, in no particular order.
  absl::Status VisitStripe(int stripe, const std::function<void(int64_t, const float*)>& fn) const;
  // Adds rows that the table does not have.
  absl::Status Add(absl::Span<const int64_t> ids, absl::Span<const float> rows) const;

 private:
  // `memory`: nullopt for the rows themselves.
  PersistentRows(SparseTable* table, std::optional<SparseTable::Memory> memory);

  SparseTable* table_;
  std::optional<SparseTable::Memory> memory_;
  TableLayout layout_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_PERSISTENT_ROWS_H_
