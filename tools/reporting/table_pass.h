// One pass over the rows of a table in a checkpoint, which adds up all that its report needs.
#ifndef WEIR_TOOLS_REPORTING_TABLE_PASS_H_
#define WEIR_TOOLS_REPORTING_TABLE_PASS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/shard.h"
#include "tools/reporting/column.h"
#include "tools/reporting/rounding.h"
#include "tools/reporting/table_facts.h"

namespace weir {

// Most logical shards that a table of a job can have (transpiler/job/check_table.cc).
inline constexpr int kMostLogicalShards = 1 << 20;

// Chunk of a table: an entry of a shard file.
struct TableChunk {
  const ShardReader* reader = nullptr;
  int entry = 0;
  // Number of steps that the rows' servers had done.
  int64_t steps = 0;

  const v1::TableEntry& description() const { return reader->shard().tables(entry); }
};

// Column of a table, by where it is in a row.
struct TableColumn {
  enum Kind {
    kNorm,    // of the values
    kFloats,  // state
    kCount,   // bits of an integer: lifecycle.count
    kStep,    // bits of a step, of which the age is taken: lifecycle.step
    kSecond,  // bits of a second, relative to that of the table's first row: lifecycle.second
  };
  std::string name;
  Kind kind = kFloats;
  int64_t offset = 0;  // in floats of a row
  int64_t width = 1;
};

// Sums over all rows.
struct TableTotals {
  int64_t rows = 0;
  std::vector<TableColumn> columns;
  std::vector<v1::ColumnFigures> figures;  // of each column

  int64_t zero_rows = 0;
  int64_t not_finite_rows = 0;
  // Sums of squared values by column of the values, of rows whose values are finite.
  std::vector<double> squares;
  SixteenBitErrors errors;
  // By logical shard. Empty for more shards than kMostLogicalShards.
  std::vector<int64_t> rows_of_shard;
  VariableDigestSum digest;

  // Column that counts the steps of an id, or its shows; -1: none.
  int count_column = -1;
  bool counts_steps = false;
  // Rows whose count is 0, and those that were updated once at most. If no column counts steps: rows whose state has
  // its initial values, if those are known.
  int64_t never = 0;
  int64_t at_most_once = 0;
  double counts = 0, top_1 = 0, top_100 = 0, top_percent = 0;
  bool counts_exact = true;
  // For each of TablePassOptions.admit_after: rows with fewer counts, and the sum of the counts below it over all rows.
  std::vector<int64_t> rows_below;
  std::vector<double> counts_below;
  // For each of TablePassOptions.ttl_steps: rows of at least this age.
  std::vector<int64_t> rows_older;
};

struct TablePassOptions {
  // Rows whose lifecycle.count is at most this were updated once at most: it includes the steps as a candidate. Other
  // counts are those of updates.
  int64_t once = 1;
  // Counts that an id must have for a row.
  std::vector<int64_t> admit_after;
  std::vector<int64_t> ttl_steps;
  // Numbers of a column that are kept.
  int64_t exact_column = kExactColumn;
  // State of a row that no step had, if known.
  std::optional<std::vector<float>> initial_state;
};

// Runs the pass. `chunks`: all those of a table, of one layout. DataLoss and other errors of ShardReader::ReadTable.
absl::StatusOr<TableTotals> PassOver(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                     const TablePassOptions& options, ThreadPool* pool);

// Computes the digest of a table alone.
absl::StatusOr<VariableDigestSum> DigestOf(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                           ThreadPool* pool);

// Returns the columns of rows with this layout: the norm, and each state.
std::vector<TableColumn> ColumnsOfTable(const TableLayout& layout);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_TABLE_PASS_H_
